"""Checks the gateway and the mock engine with the OpenAI Python SDK as its users call it."""
import json
import re
import sys
import time

import openai

from harness import Processes, free_port, get, wait_for

BINARY = sys.argv[1]
MODEL = "Qwen3-8B-FP8"

mock_port, port, admin_port = free_port(), free_port(), free_port()
mock_url, base, admin = (f"http://127.0.0.1:{p}" for p in (mock_port, port, admin_port))


def running():
    metrics = get(f"{mock_url}/metrics")
    return float(re.search(r"^vllm:num_requests_running\{[^}]*\} (\S+)", metrics, re.M).group(1))


def permits_in_use():
    metrics = get(f"{admin}/metrics")
    return float(re.search(r"^elasticserve_permits_in_use\{[^}]*\} (\S+)", metrics, re.M).group(1))


def check():
    wait_for("the gateway is ready", lambda: get(f"{admin}/readyz") == "ready\n", 20)
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-check", max_retries=0, timeout=30)
    messages = [{"role": "user", "content": "Tell me about seats."}]

    assert [m.id for m in client.models.list()] == [MODEL]

    plain = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)
    assert plain.usage.completion_tokens == 8 and plain.choices[0].finish_reason == "length"

    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=8, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text and chunks[-1].usage.completion_tokens == 8, chunks[-1]

    completion = client.completions.create(model=MODEL, prompt=[11, 12, 13, 14], max_tokens=5)
    assert completion.usage.prompt_tokens == 4 and completion.usage.completion_tokens == 5
    pieces = [c.choices[0].text for c in client.completions.create(model=MODEL, prompt="x", max_tokens=5, stream=True)]
    assert len([p for p in pieces if p]) == 5, pieces

    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=1)
    headers = {name.lower(): value for name, value in raw.headers.items()}
    for name in ("x-request-id", "x-elasticserve-queue-ms", "x-elasticserve-backend", "x-elasticserve-outcome"):
        assert headers.get(name), (name, headers)

    # A stream that is closed early frees its seat in the engine and its permit at once.
    stream = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4000, stream=True)
    for number, _ in enumerate(stream):
        if number == 3:
            break
    assert running() == 1 and permits_in_use() == 1
    stream.close()
    wait_for("the engine's seat is free", lambda: running() == 0, 5)
    wait_for("the permit is free", lambda: permits_in_use() == 0, 5)

    # With the only seat taken a request is refused after its budget, and the SDK waits as it is told.
    holder = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=2000, stream=True)
    next(iter(holder))
    started = time.monotonic()
    try:
        client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
        raise AssertionError("it should have been refused")
    except openai.RateLimitError as refused:
        waited = time.monotonic() - started
        assert refused.status_code == 429 and refused.code == "queue_expired", refused
        assert float(refused.response.headers["retry-after-ms"]) >= 1000
    assert 0.45 <= waited < 5, waited
    started = time.monotonic()
    try:
        client.with_options(max_retries=1).chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
        raise AssertionError("it should have been refused twice")
    except openai.RateLimitError:
        waited = time.monotonic() - started
    # Two budgets, and the stated time of at least a second between them.
    assert waited >= 0.5 + 1.0 + 0.5 - 0.05, waited
    holder.close()

    for bad, status in ((dict(max_tokens=-1), 400), (dict(model="other"), 404)):
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": messages, **bad})
            raise AssertionError(f"{bad} should have been refused")
        except openai.APIStatusError as refused:
            assert refused.status_code == status, (bad, refused.status_code)
            assert json.loads(refused.response.text)["error"]["message"]


with Processes() as processes:
    mock = ["mock", "--profile", "gb10-qwen3-8b-fp8", "--listen", f"127.0.0.1:{mock_port}", "--speed", "4"]
    gateway = ["gateway", "--backend", mock_url, "--permits", "1", "--queue-depth", "1", "--queue-budget", "500ms"]
    processes.start(BINARY, *mock)
    processes.start(BINARY, *gateway, "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}")
    check()
assert processes.codes == [0, 0], processes.codes
print(f"openai {openai.__version__}: chat and completions, streamed and not, early close, refusals: ok")
