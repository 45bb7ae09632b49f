"""A relay that passes bytes on and keeps what it saw: every request as it was sent, and the head of every answer."""

import re
import socket
import threading
import time

HEAD = re.compile(rb"HTTP/1\.1 (\d{3})[^\r\n]*\r\n(.*?)\r\n\r\n", re.S)


class Recorder:
    """Listens on a port of its own and relays to another one, on the loopback interface."""

    def __init__(self, target):
        self.target = target
        self.sent = bytearray()
        self.answers = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def since(self, count):
        """The heads of answers after the first so many."""
        with self._lock:
            return self.answers[count:]

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self.target))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pump, args=(client, server, self._keep_request), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, self._reader()), daemon=True).start()

    @staticmethod
    def _pump(source, sink, keep):
        try:
            while data := source.recv(65536):
                keep(data)
                sink.sendall(data)
        except OSError:
            pass
        # As the relay's two ends are one connection to those who use it, the end of either is that of both.
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _keep_request(self, data):
        with self._lock:
            self.sent += data

    def _reader(self):
        seen = bytearray()

        def keep(data):
            seen.extend(data)
            while found := HEAD.search(seen):
                lines = (line.partition(b":") for line in found[2].split(b"\r\n"))
                headers = {name.decode().lower(): value.strip().decode() for name, _, value in lines}
                with self._lock:
                    self.answers.append({"status": int(found[1]), "at": time.monotonic(), **headers})
                del seen[: found.end()]
            # A head that is not whole yet is short; the rest of a body is of no interest.
            del seen[:-65536]

        return keep
