"""An engine that calls tools and answers in a given form: the same answers for everybody, in pieces where asked."""

import http.server
import json

from harness import serve

MODEL = "scripted"
ARGUMENTS = {"city": "Reykjavík", "unit": "celsius"}
PERSON = {"name": "Ada \"the first\" Lovelace", "age": 36}
AFTER_TOOL = "It is 4 °C there."


class Engine:
    """Listens on a port of its own; `bodies` are the request bodies, byte for byte."""

    def __init__(self):
        self.bodies = []
        handler = type("Handler", (Handler,), {"bodies": self.bodies})
        self.url = serve(handler)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bodies = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        models = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "check"}]}
        self._whole(models if self.path == "/v1/models" else {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.bodies.append(body)
        asked = json.loads(body)
        deltas, reason = pieces(asked)
        if asked.get("stream"):
            self._stream(asked, deltas, reason)
        else:
            message = {"role": "assistant", "content": None}
            for delta in deltas:
                merge(message, delta)
            choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
            self._whole({**common("chat.completion"), "choices": [choice], "usage": USAGE})

    def _whole(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, asked, deltas, reason):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        first = {"role": "assistant", "content": ""}
        for delta, end in [(first, None), *((delta, None) for delta in deltas), ({}, reason)]:
            choice = {"index": 0, "delta": delta, "finish_reason": end, "logprobs": None}
            self._event({**common("chat.completion.chunk"), "choices": [choice]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            self._event({**common("chat.completion.chunk"), "choices": [], "usage": USAGE})
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, value):
        # Not only ASCII, so that bytes of one character may lie in two pieces.
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))


USAGE = {"prompt_tokens": 20, "completion_tokens": 12, "total_tokens": 32}


def common(kind):
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": MODEL}


def pieces(asked):
    """What the answer is made of, and how it ends."""
    if asked["messages"][-1]["role"] == "tool":
        return [{"content": piece} for piece in parts(AFTER_TOOL)], "stop"
    if asked.get("tools"):
        name = asked["tools"][0]["function"]["name"]
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
        arguments = parts(json.dumps(ARGUMENTS, ensure_ascii=False))
        more = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in arguments]
        return [{"tool_calls": [call]}, *more], "tool_calls"
    if (asked.get("response_format") or {}).get("type") == "json_schema":
        return [{"content": piece} for piece in parts(json.dumps(PERSON, ensure_ascii=False))], "stop"
    raise ValueError(f"nothing is known to answer to {asked}")


def parts(text, length=5):
    return [text[at : at + length] for at in range(0, len(text), length)]


def merge(message, delta):
    if "content" in delta:
        message["content"] = (message["content"] or "") + delta["content"]
    for call in delta.get("tool_calls", []):
        if "id" in call:
            message["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")}]
            message["tool_calls"][0]["function"] = dict(call["function"])
        else:
            message["tool_calls"][0]["function"]["arguments"] += call["function"]["arguments"]
