"""Serves answers of a real llama.cpp server through the gateway and checks what comes."""
import json
import re
import subprocess
import sys
import time
import urllib.request

from harness import Processes, free_port, get, wait_for

BINARY, SERVER, WEIGHTS = sys.argv[1:]
SLOTS = 2

engine_port, port, admin_port = free_port(), free_port(), free_port()
engine, base, admin = (f"http://127.0.0.1:{p}" for p in (engine_port, port, admin_port))


def ask(**body):
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "Name three rivers."}], **body}
    request = urllib.request.Request(
        f"{base}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    return urllib.request.urlopen(request, timeout=60)


def busy_slots():
    return sum(slot["is_processing"] for slot in json.loads(get(f"{engine}/slots")))


def check():
    wait_for("the engine is up", lambda: get(f"{engine}/health"), 60)
    wait_for("the gateway is ready", lambda: get(f"{admin}/readyz") == "ready\n", 20)
    version = json.loads(get(f"{engine}/props")).get("build_info")
    print("engine: llama.cpp", version, "SmolLM2-135M-Instruct Q4_1,", SLOTS, "slots")

    with ask(max_tokens=24) as response:
        answer = json.load(response)
        assert response.headers["x-elasticserve-outcome"] == "admitted"
    assert answer["usage"]["completion_tokens"] > 0 and answer["choices"][0]["message"]["content"]
    print("plain:", answer["usage"]["completion_tokens"], "tokens:", repr(answer["choices"][0]["message"]["content"])[:70])

    started, first, events = time.monotonic(), None, 0
    with ask(max_tokens=24, stream=True, stream_options={"include_usage": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response:
            if line.startswith(b"data: {"):
                first = first or time.monotonic()
                events += 1
            done = line.strip() == b"data: [DONE]"
        last = time.monotonic()
    assert events > 10 and last - first > 0.05, (events, last - first)
    print(f"stream: {events} events, the first after {first - started:.3f} s, the last {last - first:.3f} s later")

    stream = ask(max_tokens=2000, stream=True)
    stream.readline()
    assert busy_slots() == 1
    left = time.monotonic()
    stream.close()
    freed = wait_for("the engine's slot is free", lambda: busy_slots() == 0, 10)
    print(f"a client that left mid-stream: slot free after {freed - left:.3f} s")

    metrics = get(f"{admin}/metrics")
    ended = dict(re.findall(r'^elasticserve_requests_total\{.*outcome="(\w+)"\} (\d+)', metrics, re.M))
    assert ended["finished"] == "2" and ended["client_gone"] == "1", ended
    print("counted by the gateway:", ended)


with Processes() as processes:
    server = [SERVER, "-m", WEIGHTS, "--alias", "smollm2", "--host", "127.0.0.1", "--port", str(engine_port)]
    server += ["-np", str(SLOTS), "-c", "4096", "-t", "1", "-tb", "1", "--metrics", "--slots"]
    gateway = ["gateway", "--backend", engine, "--permits", str(SLOTS), "--queue-budget", "5s"]
    processes.start(*server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes.start(BINARY, *gateway, "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}")
    check()
print("real engine: ok")
