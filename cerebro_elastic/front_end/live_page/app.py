"""The server's pages and answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.front_end.live_page.access import Access, Guard
from cerebro_elastic.front_end.live_page.actions import ACTIONS, perform
from cerebro_elastic.front_end.live_page.feeds import Feed, Feeds, Places
from cerebro_elastic.reporting.logged import step_curves
from cerebro_elastic.reporting.page.board import Board, json_text
from cerebro_elastic.reporting.page.report import ASSETS, page_html, tables
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.system.version import __version__

_LOOK_SECONDS = 0.15
"""Seconds between two looks of a stream for changes."""
_ALIVE_SECONDS = 10.0
"""Seconds after which a stream without changes sends a sign of life: a page without one for longer reports
that it is cut off."""
_LONGEST_BODY = 100_000
_LOG_LINES = 500
_TAIL_BYTES, _CONFIG_TAIL_BYTES = 1 << 16, 1 << 22
"""Bytes read from the end of a node's log, and of each log for the lines that name a config."""


class Server:
    """Answers requests about the runs of ``places``."""

    def __init__(self, places: Places, access: Access, ended: Callable[[], bool] = lambda: False) -> None:
        self._places = places
        self._access = access
        self._ended = ended
        self._feeds = Feeds(places)
        self.app = Starlette(
            routes=[
                Route("/", self._all_runs),
                Route("/run/{run}", self._run),
                Route("/events", self._all_events),
                Route("/run/{run}/events", self._events),
                Route("/run/{run}/logs", self._logs),
                Route("/run/{run}/steps", self._steps),
                Route("/run/{run}/{table}.csv", self._table),
                Route("/run/{run}/{action}", self._act, methods=["POST"]),
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
            page_html(
                run,
                __version__,
                token=self._access.page_token,
                read_only=self._access.read_only,
                person=person or "",
                known=person is not None,
                home=str(self._places.home.resolve()),
                etcd=", ".join(self._places.etcd.endpoints) if self._places.etcd else "",
            )
        )

    def _person(self, request: Request) -> str | None:
        """The person who sends the request, as named by the proxy."""
        header = self._access.trust_header
        return request.headers.get(header) if header is not None else None

    async def _feed(self, request: Request) -> Feed:
        """The feed of the request's run."""
        return await run_in_threadpool(self._feeds.of, request.path_params["run"])

    async def _all_runs(self, request: Request) -> Response:
        return self._page(request, "")

    async def _run(self, request: Request) -> Response:
        run = request.path_params["run"]
        try:
            await self._feed(request)
        except RunError as error:
            return HTMLResponse(page_html(run, __version__, missing=str(error)), status_code=404)
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
        """The board's changes since the page's last version, as server-sent events."""
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
        run = (await self._feed(request)).run
        node, config = request.query_params.get("node"), request.query_params.get("config")
        return _json(await run_in_threadpool(_logs_of, run.folder, node, config))

    async def _steps(self, request: Request) -> Response:
        """A config's logged values by step: by metric, pairs of step and value."""
        feed = await self._feed(request)
        visits = [] if feed.view is None else feed.view.visits.get(request.query_params.get("config", ""), [])
        return _json({"metrics": await run_in_threadpool(step_curves, list(visits))})

    async def _table(self, request: Request) -> Response:
        """The leaderboard, or the metrics of all epochs, as CSV."""
        feed = await self._feed(request)
        if feed.view is None:
            raise RunError("the run's record is being read")
        text = (await run_in_threadpool(tables, feed.view)).get(request.path_params["table"])
        if text is None:
            return PlainTextResponse("there is no such table", 404)
        return Response(text, media_type="text/csv")

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
        run = (await self._feed(request)).run
        said = await run_in_threadpool(perform, run, action, values, self._person(request))
        return _json({"said": said})


def _event_stream(changes: AsyncIterator[str]) -> Response:
    return StreamingResponse(changes, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _json(value: Any) -> Response:
    return Response(json_text(value), media_type="application/json")


async def _problem(_request: Request, error: Exception) -> Response:
    return JSONResponse({"problem": str(error)}, 409)


def _logs_of(folder: RunFolder, node: str | None, config: str | None) -> dict[str, Any]:
    """The names of the logs of the run's nodes on this machine, and the last lines of one, or those of all
    logs that name a config, each after the name of its log."""
    files = {path.stem: path for path in sorted(folder.logs.glob("*.log")) if path.is_file()}
    lines: list[str] = []
    if node in files:
        lines = _tail(files[node], _TAIL_BYTES)
    elif config:
        named = re.compile(rf"\b{re.escape(config)}\b")
        lines = [
            f"{name}: {line}"
            for name, path in files.items()
            for line in _tail(path, _CONFIG_TAIL_BYTES)
            if named.search(line)
        ]
    return {"logs": list(files), "lines": lines[-_LOG_LINES:], "folder": str(folder.logs)}


def _tail(path: Path, most: int) -> list[str]:
    """The last whole lines of at most ``most`` bytes."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[1:] if size > most else lines
