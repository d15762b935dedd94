"""Access to the page: for everybody who has the token, or whom a reverse proxy has let in.

The token comes once in the URL, and then in a cookie that no other site can send (``SameSite=Strict``) and no
script can read. A request that changes something needs two more things that another site's page does not
have: the page's own origin, and a token in a header.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cerebro_elastic.system.ownership import read_own

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors"
)
_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer: nothing is loaded from elsewhere, shown in another site's frame, or kept."""
_FILE = "ui-token"


@dataclass(frozen=True, slots=True)
class Access:
    """The conditions for a request."""

    token: str
    """The secret of the URL; with a ``trust_header`` it serves the pages' own requests alone."""
    trust_header: str | None = None
    """The header in which a reverse proxy names the person whom it has let in."""
    read_only: bool = False
    """Whether every change of a run is refused."""
    frames: tuple[str, ...] = ()
    """The origins whose pages may show this one in a frame, in the form of a content security policy."""

    @property
    def cookie(self) -> str:
        """The cookie's value; the token itself is in no cookie."""
        return self._derived("cookie")

    @property
    def page_token(self) -> str:
        """The page's value of the header ``X-Cerebro-Token``."""
        return self._derived("page")

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def kept_token(home: Path) -> str:
    """The token of this ``home``, made the first time: an open page continues when its server comes back.
    Without such a folder each server has its own token."""
    file = home / _FILE
    fresh = secrets.token_urlsafe(24)
    try:
        with NamedTemporaryFile("w", dir=home, prefix=f".{_FILE}-") as new:  # only its owner can read it
            new.write(fresh)
            new.flush()
            with suppress(FileExistsError):
                os.link(new.name, file)
        return read_own(file).strip()
    except OSError:
        return fresh


class Guard:
    """Refuses requests without access, and puts the headers of safety on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        frames = " ".join(access.frames) or "'none'"
        self._headers = {**_HEADERS, "Content-Security-Policy": f"{_POLICY} {frames}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        answer = self._answer(scope)
        await (self._app if answer is None else answer)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a request that is not passed on."""
        headers, access = Headers(scope=scope), self._access
        name = f"cerebro-{(scope.get('server') or ('', 0))[1]}"  # cookies ignore ports
        if access.trust_header is not None:
            if not headers.get(access.trust_header):
                return _refused(f"the proxy has sent no header {access.trust_header}")
        else:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            given = query.pop("token", None)
            if given is not None and scope["method"] == "GET":
                if not _same(given, access.token):
                    return _refused("the token in the address is not this server's")
                foreign = bool(access.frames) and headers.get("sec-fetch-site") == "cross-site"
                return _with_cookie(scope["path"], query, name, access.cookie, foreign=foreign)
            if not _same(HTTPConnection(scope).cookies.get(name, ""), access.cookie):
                return _refused("this browser has shown no token")
        if scope["method"] not in ("GET", "HEAD"):
            return self._answer_to_change(headers)
        return None

    def _answer_to_change(self, headers: Headers) -> Response | None:
        if self._access.read_only:
            return _problem("this page is read-only: its server was started so")
        if not headers.get("origin") or urlsplit(headers["origin"]).netloc != headers.get("host"):
            return _problem("the request comes from another site's page")
        if not _same(headers.get("x-cerebro-token", ""), self._access.page_token):
            return _problem("the page is not of this server: load it again")
        return None


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())


def _with_cookie(path: str, query: Mapping[str, str], name: str, value: str, *, foreign: bool) -> Response:
    """The same address without the token, which therefore stays out of history and bookmarks.

    In a frame of a ``foreign`` site (``localhost`` and ``127.0.0.1`` are different ones) a strict cookie
    would not be sent. That frame gets its own cookie, which is sent only below that site's pages."""
    address = html.escape("/" + path.lstrip("/\\") + (f"?{urlencode(query)}" if query else ""))
    # Not a redirect: after a click on another site's link the browser would not send the cookie with it.
    # Without an icon a browser asks for one.
    answer = HTMLResponse(
        f'<!doctype html><link rel="icon" href="data:,"><meta http-equiv="refresh" content="0;url={address}">'
    )
    answer.set_cookie(name, value, httponly=True, samesite="none" if foreign else "strict", secure=foreign)
    if foreign:  # Python's cookies support this word from 3.14
        answer.headers["set-cookie"] += "; Partitioned"
    return answer


def _refused(why: str) -> Response:
    return PlainTextResponse(
        f"No access: {why}. Open the address that the server has printed; it ends with a token.", 403
    )


def _problem(why: str) -> Response:
    return JSONResponse({"problem": why}, 403)
