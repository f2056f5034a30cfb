"""A web server on this machine, in place of a real one, for the examples."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """One request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


class Answer(NamedTuple):
    """What the server answers."""

    text: str
    status: int = 200
    location: str = ""  # the target of a redirect


@dataclass
class Server:
    """A running server: its address, and the requests so far."""

    port: int
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is, by name: an address would need a rule of its own."""
        return f"http://localhost:{self.port}"


@contextmanager
def serving(site: Callable[[Asked], Answer]) -> Iterator[Server]:
    """Answer requests with a function, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, self.rfile.read(size).decode())
            server.asked.append(asked)
            answer = site(asked)
            data = answer.text.encode()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(data)))
            if answer.location:
                self.send_header("Location", answer.location)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Say nothing: what was asked is kept."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server = Server(listener.server_address[1])
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
