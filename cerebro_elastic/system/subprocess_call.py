"""Calls in a separate process, with answers as JSON.

A module is called for work that imports torch and the user's modules, which the calling process does not
import, and for work beside it: the module reads a request and writes its answers, each one JSON object on a
line. The process is a fork of the host's fork server, if it has one. A function is called in a forked child,
which has all imports of this process, and starts in milliseconds."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self, TypeAlias

from cerebro_elastic import errors
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.process import MARK, OF_TRAINING, PYTHON, die_with_parent, end_marked

NO_FORK = {forkserver.SOCKET: "off"}
"""The environment of a program whose libraries must not meet those that a fork server has imported."""


def call(
    module: str, what: str, request: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run ``module`` as a program with the ``request`` and return its answer.

    Args:
        module: The module.
        what: The name of its work in the message of an error.
        request: A JSON object.
        env: Additions to this process's environment.

    Raises:
        CerebroError: The error that it ended with; ``RunError`` if it died.
    """
    with SubprocessCall(module, what, request, env) as call:
        answer = call.answer()
        call.wait()
        return answer


class AnsweringProcess:
    """A module that runs as a program, in its own session: Ctrl-C is for this process, which ends it.

    Args:
        module: The module.
        env: Its whole environment.
        stdin: An open file that it reads.
        stderr: An open file for its output.
    """

    def __init__(self, module: str, env: Mapping[str, str], *, stdin: int, stderr: int) -> None:
        self._answers, answer_to = os.pipe()
        try:
            self.process = forkserver.start(
                [*PYTHON, "-m", module], env, stdin=stdin, stdout=answer_to, stderr=stderr
            )
        except BaseException:
            os.close(self._answers)
            raise
        finally:
            os.close(answer_to)
        self._lines: list[bytes] = []
        self._rest = b""
        self.ended = False
        """Whether it has ended: no further answer will come."""

    def next_answer(self) -> dict[str, Any] | None:
        """Wait for the next answer; ``None`` if it has ended."""
        while self.has_answer(wait=True):
            line = self._lines.pop(0)
            if line.startswith(b"{"):  # output from before the answers had stdout to themselves does not
                answer: dict[str, Any] = json.loads(line)
                return answer
        return None

    def has_answer(self, *, wait: bool) -> bool:
        """Whether a line has arrived."""
        while not self._lines and (wait or select.select([self._answers], [], [], 0)[0]):
            data = os.read(self._answers, 1 << 16)
            if not data:
                self.ended = True
                return False
            *self._lines, self._rest = (self._rest + data).split(b"\n")
        return bool(self._lines)

    def end(self) -> None:
        """Kill it, if it still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._answers)


class SubprocessCall(AnsweringProcess):
    """A module that is called, and may answer more than once. It ends with the context, and with it all its
    children.

    Raises:
        OSError: It cannot be started, as where the disk is full.
    """

    def __init__(
        self, module: str, what: str, request: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        self._what = what
        self._mark = uuid.uuid4().hex
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        # A file and not a pipe: this process does not wait until it is read.
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(request).encode())
            stdin.seek(0)
            whole = {**OF_TRAINING, **os.environ, **(env or {}), MARK: self._mark}
            super().__init__(module, whole, stdin=stdin.fileno(), stderr=self._errors.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer. Raises as ``call``."""
        answer = self.next_answer()
        if answer is None:
            raise self._died()
        if "error" in answer:
            raise getattr(errors, answer["kind"], RunError)(answer["error"])
        return answer

    def answers(self, *, wait: bool) -> Iterator[dict[str, Any]]:
        """The further answers: with ``wait`` all until the program ends, else those that have arrived. Raises
        as ``call``."""
        while self.has_answer(wait=wait):
            yield self.answer()
        if self.ended and self.process.wait():
            raise self._died()

    def wait(self) -> None:
        """Wait until it has ended."""
        self.process.wait()

    def end(self) -> None:
        """Kill it and all its children, if it still runs."""
        super().end()
        end_marked(MARK, self._mark)
        self._errors.close()

    def _died(self) -> RunError:
        status = self.process.wait()
        self._errors.seek(0)
        tail = b"\n".join(self._errors.read().splitlines()[-15:]).decode(errors="replace")
        return RunError(f"{self._what} died with status {status}:\n{tail}")


def answers_alone() -> Any:
    """The real standard output, for the answers alone: from now on, the output of users' code goes to the
    standard error."""
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answer_to


Answer: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Sends an answer."""


def serve(
    work: Callable[[dict[str, Any]], Mapping[str, Any]],
    then: Callable[[Mapping[str, Any], Answer], None] | None = None,
) -> None:
    """The ``__main__`` of a module that is called: answer the request with the result of ``work``. ``then``
    sends further answers, if it is given."""
    die_with_parent(os.getppid())
    answer_to = answers_alone()
    request = json.load(sys.stdin)

    def answer(value: Mapping[str, Any]) -> None:
        print(json.dumps(value), file=answer_to, flush=True)

    try:
        answer(work(request))
        if then is not None:
            then(request, answer)
    except CerebroError as error:
        answer({"error": str(error), "kind": type(error).__name__})


class ChildDied(CerebroError):
    """The child ended without an answer, or took too long and was killed."""


class ChildExited(ChildDied):
    """The child exited or crashed. (A child that takes too much memory or time is killed by SIGKILL.)"""


def call_in_fork(work: Callable[[], Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """Call ``work`` in a forked child and return its result, as JSON values. ``work`` must catch its
    exceptions. Raises ``ChildDied``.

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
        kind = ChildDied if code == -signal.SIGKILL else ChildExited
        raise kind(f"the process that trained {how}")
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
