"""Sends many requests of every kind through a gateway, and compares what it holds before and after them."""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

from harness import get, wait_for

BINARY, REQUESTS = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
# Of the load in shares, and how many at the same time. Permits are fewer than clients, so that some always wait, and
# the queue is shorter than what may wait, so that some are refused.
STREAMS, WHOLE, LEAVE = (0.75, 40), (0.2, 16), (0.05, 4)
WARM_UP = 0.15
# What may stay: 5 MiB of memory.
MAY_GROW = 5 << 20
CONFIG = """
[queue]
order = "wfq"
depth = 16
[log]
level = "warn"
decisions = "/dev/null"
[[tenants]]
name = "gold"
weight = 3
[[tenants]]
name = "batch"
"""


def start(*words, **options):
    """A program that ends when its stdin does, and what it says of itself."""
    process = subprocess.Popen([BINARY, *words, "--supervised"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    return process, json.loads(process.stdout.readline())


class Watched:
    """The gateway as it looks from outside."""

    def __init__(self, process, admin):
        self.id, self.admin = process.pid, admin

    def metrics(self):
        return get(f"http://{self.admin}/metrics")

    def total(self, name):
        found = re.findall(rf"^elasticserve_{name}(?:{{[^}}]*}})? (\S+)$", self.metrics(), re.M)
        return sum(float(value) for value in found)

    def ends(self):
        """Requests by how they ended, less the questions about the server."""
        ends = {}
        for end, number in re.findall(r'^elasticserve_requests_total{.*outcome="(\w+)"} (\d+)$', self.metrics(), re.M):
            ends[end] = ends.get(end, 0) + int(number)
        ends.pop("passed_by", None)
        return ends

    def rest(self):
        """Waits until nothing runs, and the idle connections to the engines have been closed."""
        wait_for("nothing runs", lambda: self.total("connections") == self.total("permits_in_use") == 0, 30)
        before = None

        def quiet():
            nonlocal before
            last, before = before, self.files()
            time.sleep(1)
            return last == before

        time.sleep(4)
        wait_for("files stay as they are", quiet, 30)

    def files(self):
        return len(os.listdir(f"/proc/{self.id}/fd"))

    def status(self, name):
        text = pathlib.Path(f"/proc/{self.id}/status").read_text()
        return int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.id}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def held(self):
        self.rest()
        return {
            "resident": self.status("VmRSS") << 10,
            "threads": self.status("Threads"),
            "files": self.files(),
            "tasks": self.total("tasks"),
            "in use": self.total("permits_in_use"),
            "waiting": self.total("queue_depth"),
            "bodies": self.total("body_memory_bytes"),
            "permits": self.total("permits"),
        }


def generate(url, folder, name, count, workers, *more):
    words = ["load", "--url", url, "--model", "m", "--concurrency", str(workers), "--num-prompts", str(count), "--isl", "64",
             "--osl", "4", "--ignore-eos", "--measure-ceiling", "off", "--name", name, "--result-dir", str(folder / name)]
    return subprocess.Popen([BINARY, *words, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def leave(address, count):
    """Clients that go once they have seen the beginning of their answer."""
    host, port = address.split(":")
    body = json.dumps({"model": "m", "prompt": [1, 2, 3], "max_tokens": 200, "ignore_eos": True, "stream": True})
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"
    request = f"{head}x-elasticserve-tenant: batch\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    for _ in range(count):
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(request)
            client.recv(64)


def lap(address, folder, name, count):
    """So many requests; returns once all have ended."""
    url = f"http://{address}"
    (streams, many), (whole, some), (leaving, few) = STREAMS, WHOLE, LEAVE
    loads = [
        generate(url, folder, f"{name}-streams", int(count * streams), many, "--header", "x-elasticserve-tenant=gold"),
        generate(url, folder, f"{name}-whole", int(count * whole), some, "--no-streaming"),
    ]
    each = int(count * leaving) // few
    leavers = [threading.Thread(target=leave, args=(address, each)) for _ in range(few)]
    for thread in leavers:
        thread.start()
    for thread in leavers:
        thread.join()
    for process in loads:
        process.wait()
    return int(count * streams) + int(count * whole) + each * few


def check(gateway, address, folder):
    warm_up = lap(address, folder, "warm-up", int(REQUESTS * WARM_UP))
    before = gateway.held()
    counted = sum(gateway.ends().values())
    assert counted == warm_up, f"{counted} of {warm_up} requests were counted"
    began, cpu = time.monotonic(), gateway.cpu()
    sent = lap(address, folder, "soak", REQUESTS)
    took, cpu = time.monotonic() - began, gateway.cpu() - cpu
    after = gateway.held()
    by_end = gateway.ends()
    counted = sum(by_end.values()) - counted
    print(f"{sent} requests in {took:.0f} s, {1e6 * cpu / sent:.0f} us of CPU each; all of the gateway's life: {by_end}")
    print(f"{'':10}{'before':>14}{'after':>14}")
    for name in before:
        print(f"{name:10}{before[name]:14.0f}{after[name]:14.0f}")
    wrong = [name for name in before if name not in ("resident", "threads") and before[name] != after[name]]
    wrong += ["resident"] if after["resident"] > before["resident"] + MAY_GROW else []
    wrong += [name for name in ("in use", "waiting", "bodies") if after[name]]
    wrong += [f"{counted} counted"] if counted != sent else []
    wrong += [f"nothing was {end}" for end in ("finished", "client_gone", "queue_full") if not by_end.get(end)]
    return wrong


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        engines = [start("mock", "--listen", "127.0.0.1:0", "--speed", "1000", "--model", "m") for _ in range(2)]
        config = CONFIG + "".join(f'[[backends]]\nurl = "http://{said["listen"]}"\npermits = 20\n' for _, said in engines)
        (folder / "gateway.toml").write_text(config)
        process, said = start("gateway", "--config", folder / "gateway.toml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        try:
            gateway = Watched(process, said["admin"])
            wait_for("the gateway is ready", lambda: gateway.total("backend_up") == 2, 20)
            wrong = check(gateway, said["listen"], folder)
        finally:
            # They end when their stdin does.
            for process in [process, *(engine for engine, _ in engines)]:
                process.stdin.close()
                process.wait(timeout=60)
        sys.exit(f"not given back, or not as it should be: {', '.join(wrong)}" if wrong else 0)


main()
