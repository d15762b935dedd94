"""Calls in a process of their own, with answers as JSON.

Of a module, for work that imports torch and the user's modules: the calling process imports neither. The
module reads a request and writes its answers, each one JSON object. Or of a function in a forked child: it
has all that this process has imported, and starts in milliseconds where a new process would import torch for
seconds."""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

from cerebro_elastic import errors
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.process import MARK, PYTHON, die_with_parent, end_marked


def call(
    module: str, what: str, request: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run ``module`` as a program with the ``request`` and return its answer.

    Args:
        module: The module.
        what: Names its work in the message of an error.
        request: A JSON object.
        env: What it has in its environment besides this process's.

    Raises:
        CerebroError: The error that it ended with; ``RunError`` if it died.
    """
    with SubprocessCall(module, what, request, env) as call:
        answer = call.answer()
        call.wait()
        return answer


class SubprocessCall:
    """A module that runs as a program and may answer more than once. It ends with the context."""

    def __init__(
        self, module: str, what: str, request: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        self._what = what
        self._mark = uuid.uuid4().hex
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        read_request, request_to = os.pipe()
        self._answers, answer_to = os.pipe()
        try:
            self._process = forkserver.start(
                [*PYTHON, "-m", module],
                {**os.environ, **(env or {}), MARK: self._mark},
                stdin=read_request,
                stdout=answer_to,
                stderr=self._errors.fileno(),
            )
        finally:
            os.close(read_request)
            os.close(answer_to)
        self._lines: list[bytes] = []
        self._rest = b""
        self.ended = False
        """Whether it has ended by itself: no further answer will come."""
        with suppress(BrokenPipeError), os.fdopen(request_to, "wb") as pipe:
            pipe.write(json.dumps(request).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer. Raises as ``call``."""
        while self._read(wait=True):
            line = self._lines.pop(0)
            if not line.startswith(b"{"):  # what was printed before the answers had stdout to themselves
                continue
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                raise getattr(errors, answer["kind"], RunError)(answer["error"])
            return answer
        raise self._died()

    def answers(self, *, wait: bool) -> Iterator[dict[str, Any]]:
        """The further answers: with ``wait`` all until the program ends, else those that have come. Raises as
        ``call``."""
        while self._read(wait=wait):
            yield self.answer()
        if self.ended and self._process.wait():
            raise self._died()

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        self._process.wait()

    def end(self) -> None:
        """Kill it and all its children, if it has not ended."""
        self._process.kill()
        self._process.wait()
        end_marked(MARK, self._mark)
        os.close(self._answers)
        self._errors.close()

    def _died(self) -> RunError:
        status = self._process.wait()
        self._errors.seek(0)
        tail = b"\n".join(self._errors.read().splitlines()[-15:]).decode(errors="replace")
        return RunError(f"{self._what} died with status {status}:\n{tail}")

    def _read(self, *, wait: bool) -> bool:
        """Whether a line has come."""
        while not self._lines and (wait or select.select([self._answers], [], [], 0)[0]):
            data = os.read(self._answers, 1 << 16)
            if not data:
                self.ended = True
                return False
            *self._lines, self._rest = (self._rest + data).split(b"\n")
        return bool(self._lines)


def serve(
    work: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    then: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]] | None = None,
) -> None:
    """The ``__main__`` of such a module: answer the request with what ``work`` returns, and then with each
    value of ``then``, if it is given."""
    die_with_parent(os.getppid())
    # Users' modules may print; the answers alone go to the real stdout.
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.load(sys.stdin)

    def answers() -> Iterator[Mapping[str, Any]]:
        yield work(request)
        if then is not None:
            yield from then(request)

    try:
        for answer in answers():
            print(json.dumps(answer), file=answer_to, flush=True)
    except CerebroError as error:
        print(json.dumps({"error": str(error), "kind": type(error).__name__}), file=answer_to, flush=True)


class ChildDied(CerebroError):
    """The child ended without an answer, or took too long and was killed."""


def call_in_fork(work: Callable[[], Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """Call ``work`` in a forked child and return its result, as JSON values. ``work`` must catch what it may
    raise. Raises ``ChildDied``.

    The child has only the calling thread of this process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reads, writes = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _answer(work, writes, parent)
    os.close(writes)
    try:
        text = _read(reads, time.monotonic() + seconds)
    except BaseException:  # Ctrl-C, too
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reads)
    _, status = os.waitpid(child, 0)
    if not text:
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        raise ChildDied(f"the process that trained {how}")
    answer: dict[str, Any] = json.loads(text)
    return answer


def _answer(work: Callable[[], Mapping[str, Any]], writes: int, parent: int) -> None:
    """Answer and exit: the child must not return into its parent's code."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        die_with_parent(parent)
        data = json.dumps(work()).encode()
        with os.fdopen(writes, "wb") as file:
            file.write(data)
        status = 0
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _read(file: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise ChildDied("the process that trained took too long and was ended")
            part = os.read(file, 1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
