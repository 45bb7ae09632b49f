"""Puts a proxy in front of a gateway in front of an engine that waits for its client, and looks at both ends."""

import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading

from harness import Processes, free_port, get, serve, wait_for

BINARY, *PROXIES = sys.argv[1:]
FILES = pathlib.Path(__file__).parent.parent / "deploy/proxies"
EVENTS = 50
# Long enough for a busy machine, and far less than any proxy's patience with a silent server.
PATIENCE = 5
CONFIG = """
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
trusted_proxies = ["127.0.0.1/32"]
default_tenant = "standard"
[[tenants]]
name = "gold"
[[tenants]]
name = "standard"
[[backends]]
url = "{engine}"
permits = 1
[queue]
depth = 4
[log]
level = "error"
"""
# Changes of the files with which that check must fail.
WRONG = {
    "nginx": [
        # What is compressed is kept back, and clients that are SDKs take it compressed.
        ("proxy_buffering off;", "gzip on; gzip_proxied any; gzip_types *; gzip_min_length 0;", "streams"),
        ("proxy_buffering off;", "proxy_ignore_client_abort on;", "leaves"),
        ("proxy_set_header x-elasticserve-tenant $tenant;", "", "tenants"),
        ("client_max_body_size 32m;", "", "bodies"),
    ],
    "haproxy": [
        ("option abortonclose", "", "leaves"),
        ("http-request set-header x-elasticserve-tenant standard", "", "tenants"),
    ],
    "envoy": [("OVERWRITE_IF_EXISTS_OR_ADD", "ADD_IF_ABSENT", "tenants")],
}


class Engine:
    """Sends an event of a stream only when it is told that the one before has arrived, and no other answer at all."""

    def __init__(self):
        self.arrived = threading.Semaphore(0)
        self.bodies = []
        handler = type("Handler", (Handler,), {"engine": self})
        self.url = serve(handler)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.engine.bodies.append(body)
        asked = json.loads(body)
        if asked.get("stream"):
            self.stream()
        elif asked.get("hang"):
            self.connection.recv(1)
            self.close_connection = True
        else:
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(EVENTS):
            data = event(number)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            # Whoever has left tells nothing any more.
            if not self.engine.arrived.acquire(timeout=PATIENCE):
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")


def event(number):
    return b'data: {"choices":[{"index":0,"text":" %d"}]}\n\n' % number


class Client:
    """A connection with one request."""

    def __init__(self, port, asked, headers=(), host="llm.example", source="127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0))
        body = json.dumps(asked).encode()
        lines = [f"POST /v1/completions HTTP/1.1", f"host: {host}", "content-type: application/json"]
        lines += [*headers, f"content-length: {len(body)}", "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + body)
        self.body, self.seen = body, b""

    def until(self, part):
        """Reads until this has come; what has come then."""
        while part not in self.seen:
            data = self.socket.recv(65536)
            assert data, f"the connection ended before {part}: {self.seen[-300:]}"
            self.seen += data
        return self.seen

    def head(self):
        head = self.until(b"\r\n\r\n").partition(b"\r\n\r\n")[0].decode()
        status, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(status.split()[1]), headers

    def close(self):
        self.socket.close()


class Stand:
    """The engine, the gateway, and the proxy in front of it."""

    def __init__(self, processes, folder, proxy, change):
        self.engine, self.port, self.admin = Engine(), free_port(), free_port()
        self.gateway = free_port()
        told = {"port": self.gateway, "admin": self.admin, "engine": self.engine.url}
        (folder / "gateway.toml").write_text(CONFIG.format(**told))
        processes.start(BINARY, "gateway", "--config", str(folder / "gateway.toml"))
        wait_for("the gateway is ready", lambda: get(f"http://127.0.0.1:{self.admin}/readyz") == "ready\n", 20)
        start(processes, folder, proxy, change, self.port, self.gateway)
        wait_for("the proxy listens", lambda: socket.create_connection(("127.0.0.1", self.port), 1).close() is None, 20)

    def ask(self, asked, headers=(), **options):
        return Client(self.port, {"model": "m", "prompt": "x", **asked}, headers, **options)

    def metric(self, name, **labels):
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        text = get(f"http://127.0.0.1:{self.admin}/metrics")
        found = re.findall(rf"^{name}\{{([^}}]*)\}} (\S+)$", text, re.M)
        return sum(float(value) for given, value in found if all(label in given for label in wanted))

    def wait_for(self, name, value):
        wait_for(f"{name} is {value}", lambda: self.metric(name) == value, PATIENCE)


def start(processes, folder, proxy, change, port, gateway):
    """Starts a proxy with its file, of which only the addresses are changed, and what is to be taken out."""
    [file] = FILES.glob(f"{proxy}.*")
    text = file.read_text()
    ports = {"8000": str(port), "8080": str(gateway)}
    text, count = re.subn(r"(127\.0\.0\.1(?::|, port_value: ))(8000|8080)\b", lambda m: m[1] + ports[m[2]], text)
    assert count == 2, f"{file} must name both addresses once, not {count}"
    if change:
        assert change[0] in text, (file, change)
        text = text.replace(*change[:2])
    own = folder / file.name
    if proxy == "nginx":
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
            text = text.replace("http {", f"http {{\n    {kind}_temp_path {folder}/{kind};", 1)
        text = text.replace("http {", "http {\n    access_log off;", 1)
    own.write_text(text)
    program = os.environ.get(f"{proxy.upper()}_PROGRAM", proxy)
    if proxy == "nginx":
        # As root its workers would be nobody's, and could not write where this check lets them.
        main = f"daemon off; pid {folder}/nginx.pid; {'user root;' if os.getuid() == 0 else ''}"
        processes.start(program, "-c", str(own), "-p", str(folder), "-e", str(folder / "nginx.log"), "-g", main)
    elif proxy == "haproxy":
        processes.start(program, "-db", "-q", "-f", str(own))
    else:
        quiet = ["--concurrency", "1", "--disable-hot-restart", "-l", "error"]
        processes.start(program, "-c", str(own), *quiet)


def streams(stand):
    """The engine sends no event before the client has the one before, so whoever keeps any back stops everything."""
    client = stand.ask({"stream": True}, ["accept-encoding: gzip, deflate"])
    for number in range(EVENTS):
        client.until(event(number).strip())
        stand.engine.arrived.release()
    client.until(b"\r\n0\r\n\r\n")
    status, headers = client.head()
    assert (status, headers["x-elasticserve-outcome"], headers["cache-control"]) == (200, "admitted", "no-cache"), headers
    client.close()
    stand.wait_for("elasticserve_permits_in_use", 0)


def leaves(stand):
    """A client that leaves in a stream, before its answer, or while it waits, is gone for the gateway too."""
    client = stand.ask({"stream": True})
    client.until(event(0).strip())
    client.close()
    stand.wait_for("elasticserve_permits_in_use", 0)
    holder = stand.ask({"hang": True})
    stand.wait_for("elasticserve_permits_in_use", 1)
    waiting = stand.ask({"hang": True})
    stand.wait_for("elasticserve_queue_depth", 1)
    waiting.close()
    stand.wait_for("elasticserve_queue_depth", 0)
    holder.close()
    stand.wait_for("elasticserve_permits_in_use", 0)


def refusals(stand):
    """A refusal arrives with all that tells the client what to do."""
    holder = stand.ask({"hang": True})
    stand.wait_for("elasticserve_permits_in_use", 1)
    client = stand.ask({}, ["x-elasticserve-queue-budget-ms: 0"])
    client.until(b"}}")
    status, headers = client.head()
    assert (status, headers["x-elasticserve-reason"]) == (429, "queue_expired"), (status, headers)
    assert int(headers["retry-after"]) >= 1 and int(headers["retry-after-ms"]) >= 1000, headers
    assert headers["x-elasticserve-outcome"] == "rejected" and headers["x-request-id"], headers
    assert b'"code":"queue_expired"' in client.seen, client.seen
    hopeless = stand.ask({"max_tokens": 0})
    hopeless.until(b"}}")
    assert hopeless.head()[0] == 400, hopeless.seen
    for each in (client, hopeless, holder):
        each.close()
    stand.wait_for("elasticserve_permits_in_use", 0)


def tenants(stand):
    """Whose a request is, is what the proxy says; who comes past the proxy, or lies to it, says nothing."""
    lies = ["x-elasticserve-tenant: {}", "x-llm-d-inference-fairness-id: {}", "x-gateway-inference-fairness-id: {}"]
    cases = [
        (stand.port, "gold.llm.example", "standard", "127.0.0.1", "gold"),
        (stand.port, "llm.example", "gold", "127.0.0.1", "standard"),
        # Another peer than the one that is believed.
        (stand.gateway, "gold.llm.example", "gold", "127.0.0.2", "standard"),
        (stand.gateway, "llm.example", "gold", "127.0.0.1", "gold"),
    ]
    for port, host, lie, source, tenant in cases:
        before = stand.metric("elasticserve_slo_results_total", tenant=tenant)
        headers = [line.format(lie) for line in lies]
        client = Client(port, {"model": "m", "prompt": "x"}, headers, host=host, source=source)
        client.until(b"\r\n\r\n{}")
        client.close()
        ended = lambda: stand.metric("elasticserve_slo_results_total", tenant=tenant) == before + 1
        wait_for(f"a request to {host} is {tenant}'s", ended, PATIENCE)


def bodies(stand):
    """A large body arrives as it was sent."""
    client = stand.ask({"prompt": "é\\\u2028 " * 250_000})
    client.until(b"\r\n\r\n{}")
    assert stand.engine.bodies[-1] == client.body and len(client.body) > 3_000_000
    client.close()


def run(proxy, checks, change=None):
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        # The workers of nginx may be another user's.
        os.chmod(folder, 0o755)
        stand = Stand(processes, pathlib.Path(folder), proxy, change)
        for check in checks:
            check(stand)


def version(proxy):
    flag = {"nginx": "-v", "haproxy": "-v", "envoy": "--version"}[proxy]
    program = os.environ.get(f"{proxy.upper()}_PROGRAM", proxy)
    said = subprocess.run([program, flag], capture_output=True, text=True, check=True)
    return re.search(r"\d+\.\d+\.\d+", said.stdout + said.stderr)[0]


def main():
    checks = {check.__name__: check for check in (streams, leaves, refusals, tenants, bodies)}
    for proxy in PROXIES:
        run(proxy, checks.values())
        print(f"{proxy} {version(proxy)}: {', '.join(checks)}: all is well", flush=True)
        for change in WRONG[proxy]:
            told = f"{proxy} with '{change[1]}' in place of '{change[0]}'"
            try:
                run(proxy, [checks[change[2]]], change)
            except (AssertionError, TimeoutError):
                print(f"{told}: {change[2]} fails, as it must", flush=True)
            else:
                sys.exit(f"{told}: {change[2]} holds, so it does not rest on that")


main()
