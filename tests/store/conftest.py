"""Every driver that is installed here, and a network that can fail: a TCP proxy in front of a real etcd."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec

import pytest

from cerebro_elastic.config import StoreSettings, host_port, socket_path
from cerebro_elastic.store.client.etcd import EtcdStore

_PACKAGES = {"gateway": "urllib3", "grpc": "etcd3"}


@pytest.fixture(params=[driver for driver, package in _PACKAGES.items() if find_spec(package)])
def driver(request: pytest.FixtureRequest) -> str:
    """Each driver whose package is here: `make test` also runs the tests that use this in an environment with
    ``etcd3``."""
    return str(request.param)


@pytest.fixture
def connect(driver: str) -> Callable[[StoreSettings], EtcdStore]:
    """Opens a store, in turn by each driver."""
    return lambda settings: EtcdStore(replace(settings, driver=driver))


class Proxy:
    """Passes connections on to the endpoint ``target``; speaks TLS to clients if it has a ``context``.

    While ``swallow`` is set, no answer comes through; while ``cut`` is set, a connection ends when
    its answer begins. An answer of more bytes at once than ``most`` ends all answers of its connection.
    """

    def __init__(self, target: str, context: ssl.SSLContext | None = None) -> None:
        self.swallow = False
        self.cut = False
        self.most = 1 << 20
        self._target = target
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._listening = threading.Event()
        self._thread.start()
        assert self._listening.wait(60)

    @property
    def endpoint(self) -> str:
        return f"localhost:{self.port}" if self._context else f"127.0.0.1:{self.port}"

    def settings(self, patience: float = 10.0) -> StoreSettings:
        return StoreSettings(endpoints=(self.endpoint,), patience=patience)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def drop(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(lambda: [pump.cancel() for pump in self._pumps])

    def _run(self) -> None:
        with contextlib.closing(self._loop), contextlib.suppress(asyncio.CancelledError):
            self._main = self._loop.create_task(self._serve())
            self._loop.run_until_complete(self._main)

    async def _serve(self) -> None:
        self._pumps: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await _opened(self._target)
        except OSError:
            writer.close()
            return
        for pump in (self._pump(reader, requests, False), self._pump(answers, writer, True)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        try:
            while data := await source.read(65536):
                if answers and self.cut:
                    break
                if answers and len(data) > self.most:
                    await asyncio.Event().wait()
                if not (answers and self.swallow):
                    sink.write(data)
                    await sink.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            sink.close()


async def _opened(endpoint: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    path = socket_path(endpoint)
    if path is not None:
        return await asyncio.open_unix_connection(path)
    return await asyncio.open_connection(*host_port(endpoint))


@pytest.fixture
def proxy() -> Iterator[Callable[..., Proxy]]:
    """Makes a ``Proxy``, which lasts as long as the test."""
    with ExitStack() as stack:

        def make(target: str, context: ssl.SSLContext | None = None) -> Proxy:
            made = Proxy(target, context)
            stack.callback(made.close)
            return made

        yield make
