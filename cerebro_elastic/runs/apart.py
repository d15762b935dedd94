"""What is done in a process of its own, because it imports torch and the user's modules, and whoever asks for
it imports neither: a module that reads a request and writes an answer, both one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cerebro_elastic import errors
from cerebro_elastic.errors import CerebroError, RunError


def ask(module: str, what: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What ``module``, run as a program, answers. Raises the error that it ended with; ``RunError`` if it
    died, of which ``what`` names its work."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as exc:
        tail = "\n".join(done.stderr.splitlines()[-15:])
        raise RunError(f"{what} died with status {done.returncode}:\n{tail}") from exc
    if "error" in answer:
        raise getattr(errors, answer["kind"], RunError)(answer["error"])
    return answer


def serve(work: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """In such a module's ``__main__``: do the ``work`` that is asked for."""
    # Users' modules may print; the answer alone goes to the real stdout.
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer = work(json.load(sys.stdin))
    except CerebroError as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    print(json.dumps(answer), file=answer_to, flush=True)
