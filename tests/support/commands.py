"""The command as users type it, in this process: importing torch takes seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from pydantic import TypeAdapter


class Said(NamedTuple):
    """What a command left: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


Cerebro = Callable[..., Said]
"""``cerebro("run", "recipe.yaml")``."""


def assert_shape(command: str, text: str) -> None:
    """What the command has printed with ``--json`` has the keys of the reference, with their types, and no
    others."""
    from cerebro_elastic.cli.shapes import SHAPES

    value, shape = json.loads(text), TypeAdapter(SHAPES[command])
    assert shape.dump_python(shape.validate_python(value), mode="json") == value
