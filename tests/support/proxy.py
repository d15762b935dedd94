"""A proxy before an S3 server that misbehaves by a plan, as a storage does on its bad days."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self, TypeAlias


class Bad(Enum):
    """The fate of a request."""

    SLOW_DOWN = 503
    BROKEN = 500
    EXPIRED = 400
    FORBIDDEN = 403
    NOT_IMPLEMENTED = 501
    QUOTA = 507
    CLEARED = 404
    HANG = "no answer"
    DROP = "the connection ends without an answer"
    LOST = "it is done, and the connection ends without an answer"
    CUT = "the connection ends in the middle of the answer"
    SHORT = "half of the answer comes as if it was all"


_CODES = {
    Bad.SLOW_DOWN: "SlowDown",
    Bad.BROKEN: "InternalError",
    Bad.EXPIRED: "ExpiredToken",
    Bad.FORBIDDEN: "AccessDenied",
    Bad.NOT_IMPLEMENTED: "NotImplemented",
    Bad.QUOTA: "XMinioStorageFull",
    Bad.CLEARED: "NoSuchUpload",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: the ``path`` with its query, and the access key id of its signature. One that
    ``creates`` writes only what is not there yet."""

    number: int
    method: str
    path: str
    key: str
    body: bytes = field(repr=False)
    creates: bool


Plan: TypeAlias = Callable[[Request], Bad | None]


def _all_well(_request: Request) -> Bad | None:
    return None


class BadProxy:
    """Passes requests on to the server on a port of this machine, unless ``plan`` says otherwise;
    ``requests`` remembers them all, ``served`` how many bytes were answered to GET, by path. What is
    written is late by ``delay`` seconds, and the clock is ``clock_ahead`` by seconds. The block's end lets go
    who hangs."""

    def __init__(self, target: int, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.target = target
        self.requests: list[Request] = []
        self.served: Counter[str] = Counter()
        self.plan: Plan = _all_well
        self.delay = 0.0
        self.clock_ahead = 0.0
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(address, _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="bad proxy")

    @property
    def endpoint(self) -> str:
        return "http://{}:{}".format(*self._server.server_address[:2])

    def first(self, times: int, bad: Bad, method: str = "") -> None:
        """The next ``times`` requests (of ``method``) go wrong, those after them do not."""
        left = times

        def plan(request: Request) -> Bad | None:
            nonlocal left
            if left == 0 or method not in ("", request.method):
                return None
            left -= 1
            return bad

        self.plan = plan

    def reset(self) -> None:
        """Forget the requests and the plan, and release hanging ones."""
        self.plan = _all_well
        self.released.set()
        self.released = threading.Event()
        self.requests.clear()
        self.served.clear()

    def judge(self, method: str, path: str, key: str, body: bytes, creates: bool) -> Bad | None:
        with self._lock:
            request = Request(len(self.requests), method, path, key, body, creates)
            self.requests.append(request)
            return self.plan(request)

    def count(self, path: str, size: int) -> None:
        with self._lock:
            self.served[path] += size

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(proxy: BadProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            with suppress(ConnectionError):  # who asked has gone
                self.serve()

        def serve(self) -> None:
            self.close_connection = True  # one request a connection: a fault is one request's
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            key = self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
            released = proxy.released
            bad = proxy.judge(self.command, self.path, key, body, "If-None-Match" in self.headers)
            if bad in _CODES:
                self.answer(int(bad.value), _CODES[bad])
            elif bad is Bad.HANG:
                released.wait()
            elif bad is not Bad.DROP:
                if self.command in ("PUT", "POST"):
                    released.wait(proxy.delay)
                self.forward(body, bad)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

        def answer(self, status: int, code: str) -> None:
            text = f"<Error><Code>{code}</Code><Message>on purpose</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        def forward(self, body: bytes, bad: Bad | None) -> None:
            server = http.client.HTTPConnection("127.0.0.1", proxy.target, timeout=30)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("expect", "connection")}
            server.request(self.command, self.path, body, {**headers, "Connection": "close"})
            answer = server.getresponse()
            data = answer.read()
            server.close()
            if bad is Bad.LOST:
                return
            if bad is Bad.SHORT:
                data = data[: len(data) // 2]
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in (
                    "connection",
                    "transfer-encoding",
                    "content-length",
                    "date",
                    "server",
                ):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "GET":  # before it is answered: then whoever has the bytes finds them counted
                proxy.count(self.path.partition("?")[0], len(data))
            self.wfile.write(data[: len(data) // 2] if bad is Bad.CUT else data)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((timestamp or time.time()) + proxy.clock_ahead)

        def log_message(self, *_: object) -> None:
            """Tests look at ``requests``."""

    return Handler
