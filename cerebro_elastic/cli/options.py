"""Arguments and options of several commands, their completion in the shell, and the end of commands.

For completion only folders and the recorded history are read: importing other modules would take a second.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from pydantic import Field
from pydantic_core import to_jsonable_python

from cerebro_elastic.config import GRACE
from cerebro_elastic.system.departure import leave_within, stay
from cerebro_elastic.system.process import stop_printing, watch_parent
from cerebro_elastic.system.words import visible

_CONFIG_ID = re.compile(r'"id": ?"([^"]+)"')
_LONGEST_HISTORY_BYTES = 64 * 1024**2
"""The longest history read for completion: a longer one would keep people waiting."""


def run_ids(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """The runs in the folder of runs whose ids begin with ``incomplete``."""
    for spec in sorted(_home(ctx).glob("*/spec.json")):
        if spec.parent.name.startswith(incomplete):
            yield spec.parent.name


def config_ids(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """The recorded configs of the run named on the command line."""
    # An option without its value ends the parsing before arguments get their names.
    run = ctx.params.get("run") or next(iter(ctx.args), "")
    folder = Path(run) if Path(run).is_dir() else _home(ctx) / run
    history = folder / "history.jsonl"
    if not history.is_file() or history.stat().st_size > _LONGEST_HISTORY_BYTES:
        return
    ids: dict[str, None] = {}
    with history.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            ids |= dict.fromkeys(_CONFIG_ID.findall(line))
    yield from (name for name in ids if name.startswith(incomplete))


def _home(ctx: typer.Context) -> Path:
    from cerebro_elastic.runs.folder import home_of

    return home_of(ctx.params.get("home"))


def option(default: Any, text: str, *names: str, **settings: Any) -> Any:
    """An option as the field of a command, with its help; ``settings`` are typer's."""
    return Field(default, description=text, json_schema_extra={"names": list(names), **settings})


def argument(default: Any, text: str, **settings: Any) -> Any:
    """An argument as the field of a command."""
    return Field(default, description=text, json_schema_extra={"argument": True, **settings})


RecipeFile = Annotated[Path, argument(..., "The recipe, a YAML file.")]
RunId = Annotated[str | None, option(None, "The run's id.", show_default="the recipe's name")]
Home = Annotated[str | None, option(None, "Folder of runs.", show_default="$CEREBRO_HOME, else ./runs")]
Epochs = Annotated[int | None, option(None, "Epochs of each config, instead of the recipe's.")]
Json = Annotated[bool, option(False, "Print one JSON object.", "--json")]
Verbose = Annotated[
    bool, option(False, "Also show every epoch of every config, and the optimality gap.", "--verbose", "-v")
]
Yes = Annotated[bool, option(False, "Go on though the code has changed since the configs were trained.")]
Grace = Annotated[float, option(GRACE, "Seconds that nodes have to leave when they are stopped.", min=0)]
SubmittedBy = Annotated[
    str | None,
    option(
        None,
        "PID@HOST that submitted this job: the command ends with the process that started it.",
        hidden=True,
    ),
]


def agreement(yes: bool) -> Callable[[str], bool]:
    """The consent to continue configs with changed code: --yes, else the answer of the person at the
    terminal. Without a terminal it is refused."""

    def agrees(question: str) -> bool:
        from cerebro_elastic.runs.start.prepare_run import refuse_other_code

        if yes:
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return refuse_other_code(question)
        try:
            return typer.confirm(f"{visible(question)}.\nGo on so?", err=True)
        except typer.Abort:
            raise KeyboardInterrupt from None

    return agrees


def overrides(**given: Any) -> dict[str, Any]:
    """The given options, as overrides of a recipe."""
    return {key: value for key, value in given.items() if value is not None}


def echo(text: str, *, err: bool = False) -> None:
    """Print a line; control characters in it become visible."""
    try:
        typer.echo(visible(text), err=err)
    except BrokenPipeError:
        stop_printing(sys.stderr if err else sys.stdout)


def echo_json(value: Any) -> None:
    """Print a value as one JSON object that every program reads: JSON has no NaN and no infinity, they become
    ``null``."""
    echo(json.dumps(to_jsonable_python(value, inf_nan_mode="null", fallback=dict), allow_nan=False))


@contextmanager
def stopped_as_by_ctrl_c(grace: float = 0.0) -> Iterator[None]:
    """Handle SIGTERM, which batch systems send, like Ctrl-C. From then on the process has ``grace`` seconds
    for all remaining waits."""

    def leave(number: int, frame: FrameType | None) -> None:
        leave_within(grace)
        signal.default_int_handler(number, frame)

    handled = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it
        handled.append(signal.SIGINT)
    before = {number: signal.signal(number, leave) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stay()


@contextmanager
def ended_by_ctrl_c(text: str, grace: float = 0.0) -> Iterator[None]:
    """``stopped_as_by_ctrl_c``; then the command ends with this ``text`` and an exit status that shows a
    scheduler its unfinished work."""
    try:
        with stopped_as_by_ctrl_c(grace):
            yield
    except KeyboardInterrupt:
        echo(text, err=True)
        raise typer.Exit(130) from None


def parent() -> str:
    """The process that started this one, in the form of ``SubmittedBy``."""
    return f"{os.getppid()}@{socket.gethostname()}"


def watch(submitted_by: str | None) -> None:
    """End this process, a part of a job, when the process that started it has ended."""
    if submitted_by is not None:
        watch_parent(os.getppid(), lambda: os.kill(os.getpid(), signal.SIGTERM))
