"""Clients that nobody made for this, unmodified, through the gateway: the OpenAI SDKs and LangChain's client.

Each does the same: models, answers whole and streamed, tool calls, structured output, streams that are closed early,
requests that are given up, refusals that are tried again and refusals that are not. In front of the gateway a relay
writes down what goes over the wire; behind it are the mock engine and one that calls tools.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Processes, free_port, get, wait_for
from recorder import Recorder
from sdk_engine import AFTER_TOOL, ARGUMENTS, MODEL as TOOLS, PERSON, Engine
from sdk_python import LangChain, Python

BINARY, NODE, MODULES = sys.argv[1:4]
MODEL = "Qwen3-8B-FP8"
# The engine's only seat is taken, so this is how long a request waits before it is turned away.
BUDGET = 0.5
# Timers of clients may fire so much early, by their own rounding.
GRAIN = 0.01
CONFIG = """
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
[[pools]]
name = "chat"
models = ["{model}"]
[[pools]]
name = "tools"
models = ["{tools}"]
[[backends]]
url = "{mock}"
permits = 1
pool = "chat"
[[backends]]
url = "{engine}"
permits = 4
pool = "tools"
[queue]
depth = 1
{queue}
[log]
level = "error"
decisions = "{decisions}"
"""


class Node:
    """The OpenAI Node SDK, in a process that is told what to do."""

    def __init__(self, base, model, tools):
        command = [NODE, str(Path(__file__).with_name("sdk_node.mjs")), MODULES, base, model, tools]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = self._do("name")

    def _do(self, action, **options):
        print(json.dumps({"action": action, **options}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"the Node process has ended in {action}"
        return json.loads(line)["result"]

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)

    def models(self):
        return self._do("models")

    def chat(self, tokens):
        return self._do("chat", tokens=tokens)

    def stream(self, tokens):
        return self._do("stream", tokens=tokens)

    def responses(self, tokens):
        return self._do("responses", tokens=tokens)

    def call_tool(self, stream):
        return self._do("call_tool", stream=stream)

    def structured(self, stream):
        return self._do("structured", stream=stream)

    def open(self, tokens, pieces):
        return self._do("open", tokens=tokens, pieces=pieces)

    def close(self):
        self._do("close")

    def give_up(self, seconds):
        return self._do("give_up", seconds=seconds)

    def refused(self, retries, headers):
        return self._do("refused", retries=retries, headers=headers)


class Gateway:
    """A gateway, the relay in front of it, and what it says about itself."""

    def __init__(self, processes, folder, name, mock, engine, queue):
        self.decisions = folder / f"{name}.ndjson"
        port, admin = free_port(), free_port()
        self.admin = f"http://127.0.0.1:{admin}"
        told = {"port": port, "admin": admin, "mock": mock, "engine": engine, "decisions": self.decisions}
        config = folder / f"{name}.toml"
        config.write_text(CONFIG.format(model=MODEL, tools=TOOLS, queue=queue, **told))
        processes.start(BINARY, "gateway", "--config", str(config))
        wait_for("the gateway is ready", lambda: get(f"{self.admin}/readyz") == "ready\n", 20)
        self.recorder = Recorder(port)
        self.base = f"http://127.0.0.1:{self.recorder.port}"

    def metric(self, name, **labels):
        """The sum of a family's series that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)$", get(f"{self.admin}/metrics"), re.M)
        return sum(float(value) for found, value in lines if all(label in found for label in wanted))

    def decided(self, ids):
        """The lines of the decision log about these requests, once all are there."""

        def found():
            lines = self.decisions.read_text().splitlines() if self.decisions.exists() else []
            about = {line["id"]: line for line in map(json.loads, lines)}
            return [about[id] for id in ids] if all(id in about for id in ids) else None

        wait_for("the decisions are written", found, 10)
        return found()


def check(client, gateway, engine, running):
    """Everything that a client does on a gateway with one seat."""
    if hasattr(client, "models"):
        assert sorted(client.models()) == sorted([MODEL, TOOLS]), client.models()
    plain = client.chat(8)
    assert plain["text"] and (plain["tokens"], plain["end"]) == (8, "length"), plain
    stream = client.stream(8)
    assert stream["text"] and (stream["tokens"], stream["pieces"]) == (8, 8), stream
    if hasattr(client, "responses"):
        answer = client.responses(6)
        assert answer["text"] and (answer["tokens"], answer["pieces"]) == (6, 6), answer

    for streamed in (False, True):
        before = len(engine.bodies)
        called = client.call_tool(streamed)
        assert called == {"name": "weather", "arguments": ARGUMENTS, "after": AFTER_TOOL}, called
        assert client.structured(streamed) == PERSON
        bodies = engine.bodies[before:]
        # What the client sent is what the engine got, byte for byte.
        assert len(bodies) == 3 and all(body in gateway.recorder.sent for body in bodies), bodies

    leaves(client, gateway, running)
    tries_again(client, gateway, running)


def leaves(client, gateway, running):
    """A stream that is closed early, and a request that is given up, free the seat and the permit."""
    in_use = lambda: gateway.metric("elasticserve_permits_in_use")
    gone = gateway.metric("elasticserve_requests_total", outcome="client_gone")
    assert client.open(4000, 4) == 4
    assert (running(), in_use()) == (1, 1)
    client.close()
    wait_for("the engine's seat is free", lambda: running() == 0, 5)
    wait_for("the permit is free", lambda: in_use() == 0, 5)
    assert client.give_up(0.3) == {"error": "timeout"}
    wait_for("the engine's seat is free again", lambda: running() == 0, 5)
    wait_for("the permit is free again", lambda: in_use() == 0, 5)
    assert gateway.metric("elasticserve_requests_total", outcome="client_gone") == gone + 2


def tries_again(client, gateway, running):
    """With the only seat taken: three attempts, each when the one before was told that it may come."""
    assert client.open(4000, 1) == 1
    retries = gateway.metric("elasticserve_retries_total", result="rejected")
    seen = len(gateway.recorder.answers)
    assert client.refused(2, {}) == {"error": 429, "code": "queue_expired"}
    client.close()
    wait_for("the engine's seat is free", lambda: running() == 0, 5)
    answers = [answer for answer in gateway.recorder.since(seen) if answer["status"] == 429]
    stated = [int(answer["retry-after-ms"]) / 1000 for answer in answers]
    attempts = gateway.decided([answer["x-request-id"] for answer in answers])
    assert [attempt["known"].get("retry", 0) for attempt in attempts] == [0, 1, 2], attempts
    assert gateway.metric("elasticserve_retries_total", result="rejected") == retries + 2
    for before, after, wait in zip(attempts, attempts[1:], stated):
        # By the gateway's own clock, from the refusal to the next arrival.
        waited = (after["arrived_ms"] - before["arrived_ms"] - before["decided"]["at_ms"]) / 1000
        assert before["decided"]["at_ms"] >= BUDGET * 1000 and wait >= 1, (before, wait)
        assert wait - GRAIN <= waited < wait + 5, (waited, wait)


def is_told_not_to(client, gateway):
    """What can never be met is a 429 here, which SDKs would retry, and says that it is pointless."""
    name = "elasticserve_requests_total"
    before = gateway.metric(name)
    assert client.refused(2, {"x-elasticserve-slo-e2e-ms": "1"}) == {"error": 429, "code": "slo_infeasible"}
    assert gateway.metric(name, outcome="slo_infeasible") >= 1
    assert gateway.metric(name) == before + 1, "it was tried again"
    assert gateway.recorder.answers[-1]["x-should-retry"] == "false"


def refuses_what_is_wrong(client):
    import openai

    for bad, status in ((dict(max_tokens=-1), 400), (dict(model="other"), 404)):
        try:
            client.chats.create(**{"model": MODEL, "messages": [{"role": "user", "content": "x"}], **bad})
            raise AssertionError(f"{bad} should have been refused")
        except openai.APIStatusError as refused:
            assert refused.status_code == status, (bad, refused.status_code)
            assert json.loads(refused.response.text)["error"]["message"]


def completions(client):
    """The older interface, with token ids and with text."""
    create = client.client.completions.create
    answer = create(model=MODEL, prompt=[11, 12, 13, 14], max_tokens=5)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 5)
    pieces = [chunk.choices[0].text for chunk in create(model=MODEL, prompt="x", max_tokens=5, stream=True)]
    assert len([piece for piece in pieces if piece]) == 5, pieces


def headers(client):
    raw = client.chats.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": "x"}], max_tokens=1
    )
    found = {name.lower(): value for name, value in raw.headers.items()}
    for name in ("x-request-id", "x-elasticserve-queue-ms", "x-elasticserve-backend", "x-elasticserve-outcome"):
        assert found.get(name), (name, found)


def main():
    engine, mock_port = Engine(), free_port()
    mock = f"http://127.0.0.1:{mock_port}"

    def running():
        return float(re.search(r"^vllm:num_requests_running\{[^}]*\} (\S+)", get(f"{mock}/metrics"), re.M).group(1))

    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        listen = ["--listen", f"127.0.0.1:{mock_port}", "--speed", "4"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.start(BINARY, "mock", "--profile", "gb10-qwen3-8b-fp8", *listen, **quiet)
        waits = f'budget = "{int(BUDGET * 1000)}ms"'
        predicts = 'admission = "predict"\ninfeasible_status = 429\n[predict]\nprofile = "gb10-qwen3-8b-fp8"'
        one = Gateway(processes, Path(folder), "waits", mock, engine.url, waits)
        other = Gateway(processes, Path(folder), "predicts", mock, engine.url, predicts)
        for kind in (Python, Node, LangChain):
            began = time.monotonic()
            client = kind(one.base, MODEL, TOOLS)
            check(client, one, engine, running)
            hopeless = kind(other.base, MODEL, TOOLS)
            is_told_not_to(hopeless, other)
            if kind is Python:
                completions(client)
                headers(client)
                refuses_what_is_wrong(client)
            for each in (client, hopeless):
                getattr(each, "end", lambda: None)()
            print(f"{client.name}: all is well, in {time.monotonic() - began:.1f} s", flush=True)
    assert processes.codes == [0, 0, 0], processes.codes


main()
