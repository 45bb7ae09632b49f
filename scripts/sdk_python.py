"""The OpenAI Python SDK and LangChain's client as their users call them, each behind the same few methods."""

import itertools
import json
from typing import Literal

import openai
import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

ASK = [{"role": "user", "content": "Tell me about seats."}]


class Person(pydantic.BaseModel):
    """A person."""

    name: str
    age: int


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


@tool
def weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """The weather of a city."""
    return f"4 {unit} in {city}"


def told(call):
    """What a call that fails is told."""
    try:
        call()
    except openai.APITimeoutError:
        return {"error": "timeout"}
    except openai.APIStatusError as refused:
        return {"error": refused.status_code, "code": refused.code}
    return {"error": None}


class Python:
    """The OpenAI Python SDK."""

    name = f"openai-python {openai.__version__}"

    def __init__(self, base, model, tools):
        self.client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-check", max_retries=0, timeout=30)
        self.chats = self.client.chat.completions
        self.model, self.tools, self.held = model, tools, None

    def models(self):
        return [model.id for model in self.client.models.list()]

    def chat(self, tokens):
        answer = self.chats.create(model=self.model, messages=ASK, max_tokens=tokens)
        choice = answer.choices[0]
        return {"text": choice.message.content, "tokens": answer.usage.completion_tokens, "end": choice.finish_reason}

    def stream(self, tokens):
        options = {"include_usage": True}
        chunks = list(
            self.chats.create(
                model=self.model, messages=ASK, max_tokens=tokens, stream=True, stream_options=options
            )
        )
        pieces = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
        return {"text": "".join(pieces), "pieces": len(pieces), "tokens": chunks[-1].usage.completion_tokens}

    def responses(self, tokens):
        whole = self.client.responses.create(model=self.model, input="Seats?", max_output_tokens=tokens)
        events = list(
            self.client.responses.create(model=self.model, input="Seats?", max_output_tokens=tokens, stream=True)
        )
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        return {"tokens": whole.usage.output_tokens, "text": whole.output_text, "pieces": len(pieces)}

    def call_tool(self, stream):
        if stream:
            with self.chats.stream(model=self.tools, messages=ASK, tools=[WEATHER]) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = self.chats.create(model=self.tools, messages=ASK, tools=[WEATHER]).choices[0].message
        call = message.tool_calls[0]
        result = {"role": "tool", "tool_call_id": call.id, "content": "4 degrees"}
        assistant = {"role": "assistant", "tool_calls": [call.model_dump(include={"id", "type", "function"})]}
        assistant["tool_calls"][0]["function"] = {"name": call.function.name, "arguments": call.function.arguments}
        after = self.chats.create(model=self.tools, messages=[*ASK, assistant, result], tools=[WEATHER])
        return {
            "name": call.function.name,
            "arguments": json.loads(call.function.arguments),
            "after": after.choices[0].message.content,
        }

    def structured(self, stream):
        if stream:
            with self.chats.stream(model=self.tools, messages=ASK, response_format=Person) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = self.chats.parse(model=self.tools, messages=ASK, response_format=Person).choices[0].message
        return {"name": message.parsed.name, "age": message.parsed.age}

    def open(self, tokens, pieces):
        self.held = self.chats.create(model=self.model, messages=ASK, max_tokens=tokens, stream=True)
        return len(list(itertools.islice(self.held, pieces)))

    def close(self):
        self.held.close()

    def give_up(self, seconds):
        client = self.client.with_options(timeout=seconds)
        return told(lambda: client.chat.completions.create(model=self.model, messages=ASK, max_tokens=2000))

    def refused(self, retries, headers):
        client = self.client.with_options(max_retries=retries)
        ask = {"model": self.model, "messages": ASK, "max_tokens": 1, "extra_headers": headers}
        return told(lambda: client.chat.completions.create(**ask))


class LangChain:
    """LangChain's OpenAI client."""

    name = "langchain-openai"

    def __init__(self, base, model, tools):
        self.base, self.model, self.tools, self.held = base, model, tools, None

    def _client(self, model, **options):
        options = {"max_retries": 0, "timeout": 30, "stream_usage": True, **options}
        return ChatOpenAI(model=model, base_url=f"{self.base}/v1", api_key="sk-check", **options)

    def chat(self, tokens):
        answer = self._client(self.model, max_tokens=tokens).invoke(ASK)
        end = answer.response_metadata["finish_reason"]
        return {"text": answer.content, "tokens": answer.usage_metadata["output_tokens"], "end": end}

    def stream(self, tokens):
        chunks = list(self._client(self.model, max_tokens=tokens).stream(ASK))
        pieces = [chunk.content for chunk in chunks if chunk.content]
        usage = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
        return {"text": "".join(pieces), "pieces": len(pieces), "tokens": usage[-1]["output_tokens"]}

    def call_tool(self, stream):
        client = self._client(self.tools).bind_tools([weather], strict=True)
        ask = [HumanMessage(ASK[0]["content"])]
        if stream:
            message = None
            for chunk in client.stream(ask):
                message = chunk if message is None else message + chunk
        else:
            message = client.invoke(ask)
        call = message.tool_calls[0]
        result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
        after = client.invoke([*ask, message, result])
        return {"name": call["name"], "arguments": call["args"], "after": after.content}

    def structured(self, stream):
        client = self._client(self.tools).with_structured_output(Person, method="json_schema")
        found = list(client.stream(ASK))[-1] if stream else client.invoke(ASK)
        return found.model_dump()

    def open(self, tokens, pieces):
        self.held = self._client(self.model, max_tokens=tokens).stream(ASK)
        return len(list(itertools.islice(self.held, pieces)))

    def close(self):
        self.held.close()
        self.held = None

    def give_up(self, seconds):
        return told(lambda: self._client(self.model, max_tokens=2000, timeout=seconds).invoke(ASK))

    def refused(self, retries, headers):
        client = self._client(self.model, max_tokens=1, max_retries=retries, default_headers=headers)
        return told(lambda: client.invoke(ASK))
