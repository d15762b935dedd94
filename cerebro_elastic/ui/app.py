"""The server's pages and answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cerebro_elastic import reporting
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.system.version import __version__
from cerebro_elastic.ui.access import Access, Guard
from cerebro_elastic.ui.actions import ACTIONS, perform
from cerebro_elastic.ui.board import Board, json_text
from cerebro_elastic.ui.feeds import Feeds
from cerebro_elastic.ui.node_logs import logs_answer
from cerebro_elastic.ui.places import Places

ASSETS = Path(__file__).parent / "assets"
_PAGE_STYLE = Path(str(reporting.__path__[0])) / "page" / "page.css"
_LOOK_SECONDS = 0.15
"""How often a stream looks for changes."""
_ALIVE_SECONDS = 10.0
"""A stream without changes sends a sign of life: a page without one for longer says that it is cut off."""
_LONGEST_BODY = 100_000


class Server:
    """Answers requests about the runs of ``places``."""

    def __init__(self, places: Places, access: Access, ended: Callable[[], bool] = lambda: False) -> None:
        self._places = places
        self._access = access
        self._ended = ended
        self._feeds = Feeds(places)
        self._template = Environment(autoescape=True).from_string(
            (ASSETS / "page.html.j2").read_text(encoding="utf-8")
        )
        self.app = Starlette(
            routes=[
                Route("/", self._all_runs),
                Route("/run/{run}", self._run),
                Route("/events", self._all_events),
                Route("/run/{run}/events", self._events),
                Route("/run/{run}/logs", self._logs),
                Route("/run/{run}/importances", self._importances),
                Route("/run/{run}/{action}", self._act, methods=["POST"]),
                Route("/assets/report.css", lambda _request: FileResponse(_PAGE_STYLE)),
                Mount("/assets", StaticFiles(directory=ASSETS)),
            ],
            middleware=[Middleware(Guard, access=access)],
            exception_handlers={CerebroError: _problem},
            lifespan=self._life,
        )

    @asynccontextmanager
    async def _life(self, _app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await run_in_threadpool(self._feeds.close)

    def _page(self, request: Request, run: str) -> Response:
        person = self._person(request)
        return HTMLResponse(
            self._template.render(
                run=run,
                token=self._access.page_token,
                read_only=self._access.read_only,
                person=person or "",
                known=person is not None,
                version=__version__,
                home=str(self._places.home.resolve()),
                etcd=", ".join(self._places.etcd.endpoints) if self._places.etcd else "",
            )
        )

    def _person(self, request: Request) -> str | None:
        """The person who sends the request, as named by the proxy."""
        header = self._access.trust_header
        return request.headers.get(header) if header is not None else None

    async def _all_runs(self, request: Request) -> Response:
        return self._page(request, "")

    async def _run(self, request: Request) -> Response:
        run = request.path_params["run"]
        try:
            await run_in_threadpool(self._feeds.of, run)
        except RunError as error:
            return HTMLResponse(
                self._template.render(missing=str(error), run=run, version=__version__), status_code=404
            )
        return self._page(request, run)

    async def _all_events(self, request: Request) -> Response:
        return _event_stream(self._changes(request, self._feeds.board))

    async def _events(self, request: Request) -> Response:
        run = request.path_params["run"]
        feed = await run_in_threadpool(self._feeds.look, run)

        async def changes() -> AsyncIterator[str]:
            try:
                async for change in self._changes(request, feed.board):
                    yield change
            finally:
                await run_in_threadpool(self._feeds.leave, run)

        return _event_stream(changes())

    async def _changes(self, request: Request, board: Board) -> AsyncIterator[str]:
        """What has changed on the board, as server-sent events, from where the page has been before."""
        known = request.headers.get("last-event-id") or request.query_params.get("after", "")
        of, _, number = known.partition("-")
        version = int(number) if of == board.id and number.isdigit() else -1
        begin = json.dumps({"fresh": version < 0, "now": time.time()})
        yield f"retry: 1000\nevent: begin\ndata: {begin}\n\n"
        silent = 0.0
        while not (self._ended() or await request.is_disconnected()):
            if board.version > version:
                version, text = await run_in_threadpool(board.since, version)
                yield f"id: {board.id}-{version}\ndata: {text}\n\n"
                silent = 0.0
            elif silent >= _ALIVE_SECONDS:
                yield "event: alive\ndata:\n\n"
                silent = 0.0
            await asyncio.sleep(_LOOK_SECONDS)
            silent += _LOOK_SECONDS

    async def _logs(self, request: Request) -> Response:
        run = (await run_in_threadpool(self._feeds.of, request.path_params["run"])).run
        node, config = request.query_params.get("node"), request.query_params.get("config")
        return _json(await run_in_threadpool(logs_answer, run.folder, node, config))

    async def _importances(self, request: Request) -> Response:
        feed = await run_in_threadpool(self._feeds.of, request.path_params["run"])
        return _json(await run_in_threadpool(feed.importances))

    async def _act(self, request: Request) -> Response:
        action = request.path_params["action"]
        if action not in ACTIONS:
            raise RunError(f"a page cannot ask to {action!r}; choices: {', '.join(ACTIONS)}")
        body = await request.body()
        if len(body) > _LONGEST_BODY:
            raise RunError("the request is too long")
        try:
            values: Any = json.loads(body)
        except ValueError as exc:
            raise RunError("the request is no JSON") from exc
        run = (await run_in_threadpool(self._feeds.of, request.path_params["run"])).run
        said = await run_in_threadpool(perform, run, action, values, self._person(request))
        return _json({"said": said})


def _event_stream(changes: AsyncIterator[str]) -> Response:
    return StreamingResponse(changes, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _json(value: Any) -> Response:
    return Response(json_text(value), media_type="application/json")


async def _problem(_request: Request, error: Exception) -> Response:
    return JSONResponse({"problem": str(error)}, 409)
