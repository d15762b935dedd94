"""A watch over etcd's JSON gateway that survives lost connections."""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import requests

from cerebro_elastic.clock import Clock
from cerebro_elastic.errors import Compacted
from cerebro_elastic.store.answers import PERMISSION_DENIED, NoAnswer, NotSent, from_error
from cerebro_elastic.store.base import ChangeBatch
from cerebro_elastic.store.gateway import Gateway
from cerebro_elastic.store.wire import Json, batches_from, range_json

_REOPEN_SECONDS = 0.05
# At most: what has come is read at once.
_READ_BYTES = 1 << 20


class EtcdWatch:
    """A ``Watch``: a thread reads the stream, and opens it again at the last revision + 1 when it ends.

    A stream that was silent for half the patience is opened anew, because that is the only way to
    tell a quiet etcd from one that hangs or a network that drops packets.
    """

    def __init__(self, gateway: Gateway, clock: Clock, prefix: str, start: int) -> None:
        self._gateway = gateway
        self._clock = clock
        self._prefix = prefix
        # To etcd, revision 0 means "from now on".
        self._position = max(start, 1)
        self._login_renewed = False
        self._batches: queue.SimpleQueue[ChangeBatch | Exception | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._stream: requests.Response | None = None
        self._stream_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"watch {prefix}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "closed" if self._stopped.is_set() else f"at revision {self._position}"
        return f"<EtcdWatch of {self._prefix!r} {state}>"

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        if self._stopped.is_set():
            return None
        try:
            got = self._batches.get(timeout=None if timeout is None else max(timeout, 0))
        except queue.Empty:
            return None
        if isinstance(got, ChangeBatch):
            return got
        # The end of the stream is seen by every later call too.
        self._batches.put(got)
        if got is None:
            return None
        raise got

    def close(self) -> None:
        self._stopped.set()
        self._batches.put(None)
        with self._stream_lock:
            if self._stream is not None:
                _shut_down(self._stream)
        # Not for long: the thread may be connecting to a host that does not answer.
        self._thread.join(timeout=1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as exc:
            # Whatever it is, it belongs to who waits in next().
            self._batches.put(exc)

    def _follow(self) -> None:
        heard = self._clock.now()
        while not self._stopped.is_set():
            try:
                stream = self._open()
            except (NotSent, NoAnswer) as exc:
                if self._clock.now() - heard > self._gateway.settings.patience:
                    raise self._gateway.unavailable(exc) from exc
            else:
                with stream:
                    self._read(stream)
                heard = self._clock.now()
            self._stopped.wait(_REOPEN_SECONDS)

    def _open(self) -> requests.Response:
        request = {**range_json(self._prefix), "start_revision": str(self._position), "fragment": True}
        return self._gateway.stream("watch", {"create_request": request}, self._gateway.settings.patience / 2)

    def _read(self, stream: requests.Response) -> None:
        """Deliver what comes until the stream ends, for whatever reason."""
        with self._stream_lock:
            self._stream = stream
        try:
            if self._stopped.is_set():
                return
            for batch in batches_from(self._results(stream)):
                self._batches.put(batch)
                self._position = batch.revision + 1
        except (NotSent, NoAnswer, requests.RequestException, ValueError):
            # Lost, silent, cut within a line, or ended by etcd: the position tells what was delivered.
            pass
        finally:
            with self._stream_lock:
                self._stream = None

    def _results(self, stream: requests.Response) -> Iterator[Json]:
        for line in stream.iter_lines(chunk_size=_READ_BYTES):
            message = json.loads(line)
            if "error" in message:
                raise from_error(message["error"], str(self._gateway))
            result = message["result"]
            if result.get("canceled"):
                self._cancelled(result)
                return
            self._login_renewed = False
            yield result

    def _cancelled(self, result: Json) -> None:
        if "compact_revision" in result:
            raise Compacted(
                f"the changes under {self._prefix!r} from revision {self._position} on are gone: etcd is "
                f"compacted at {result['compact_revision']}; range afresh and watch from there"
            )
        reason = str(result.get("cancel_reason", ""))
        if "denied" not in reason and "auth" not in reason:
            raise NoAnswer(reason)
        # etcd says "permission denied" also where a login is over.
        if self._gateway.settings.user is None or self._login_renewed:
            raise from_error({"message": reason, "code": PERMISSION_DENIED}, str(self._gateway))
        self._login_renewed = True
        self._gateway.forget_login()


def _shut_down(stream: requests.Response) -> None:
    """Wake the thread that reads ``stream``: closing it from here would not."""
    try:
        with socket.socket(fileno=os.dup(stream.raw.fileno())) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except (OSError, ValueError):
        pass
