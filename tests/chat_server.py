"""A small server of chat completions in this process, and ways for it to fail."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Words = Callable[[dict[str, Any], int], str | dict[str, Any]]
"""The reply to a request, which is the n-th: its words, or the whole message."""


class Server(ThreadingHTTPServer):
    """Keeps what it was asked."""

    daemon_threads = True

    def __init__(self, words: Words) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.words = words
        self.asked: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.usage: dict[str, int] | None = None
        self.failures: list[int | float | str] = []
        """What comes first: a code of HTTP, seconds of silence, a body."""
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.headers.append(self.headers.get("Authorization", ""))
        failure = self.server.failures.pop(0) if self.server.failures else None
        if isinstance(failure, float):
            self.server.over.wait(failure)
        code = failure if isinstance(failure, int) else 200
        words = self.server.words(body, len(self.server.asked))
        message = {"role": "assistant", "content": words} if isinstance(words, str) else words
        text = json.dumps({"choices": [{"message": message}], "usage": self.server.usage})
        if isinstance(failure, str):
            text = failure
        assert self.path == "/v1/chat/completions"
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving(words: Words) -> Iterator[Server]:
    """A server while the block runs."""
    made = Server(words)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        made.shutdown()
        thread.join()
        made.server_close()
