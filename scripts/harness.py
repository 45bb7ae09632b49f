"""What the checks with real processes share: ports, servers, waiting, and peers that end with the check."""
import http.server
import socket
import subprocess
import threading
import time
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve(handler):
    """Answers on loopback, each connection in a thread, until the check ends; the URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


def wait_for(what, condition, seconds):
    """Waits until `condition` holds; the time when it did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return time.monotonic()
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"this did not happen within {seconds} s: {what}")


class Processes:
    """Processes that are told to end, in order, when the block is left."""

    def __init__(self):
        self.all = []
        self.codes = []

    def start(self, *command, **options):
        self.all.append(subprocess.Popen(command, **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.all:
            process.terminate()
        self.codes = [process.wait(timeout=40) for process in self.all]
