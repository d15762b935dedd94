"""Calls in a forked child: it has all that this process has imported, and starts in milliseconds where a new
process would import torch for seconds."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.system.process import die_with_parent


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
