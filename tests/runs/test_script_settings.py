"""What a script has set before it starts a run is compared with a fresh import, and refused by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cerebro_elastic.errors import TaskError
from cerebro_elastic.front_end.run import run
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.start.script_settings import refuse_others, settings_here

pytestmark = pytest.mark.usefixtures("imports_as_found")

MODULE = """import argparse
import time
from dataclasses import dataclass

import torch
from torch import nn

import a_helper

args = argparse.Namespace(width=4)
WEIGHTS = torch.ones(3)
STARTED = time.time()
UNREAD = 1


@dataclass
class Settings:
    rate: float = 0.1


settings = Settings()


class Base(nn.Module):
    depth = 1


class Net(Base):
    def __init__(self):
        self.made = args.width, WEIGHTS, STARTED, settings.rate, a_helper.LAYERS, scaled(1)


def scaled(x):
    return x * SCALE, _known


SCALE = 1.0
_known = {}


def model():
    return Net()


def main():
    return UNREAD
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "a_script.py").write_text(MODULE)
    (tmp_path / "a_helper.py").write_text("LAYERS = {'first': [1, 2]}\n")
    task = {"kind": "torch", "model_fn": "a_script:model", "optimizer": "SGD", "loss": "mse_loss"}
    return load_recipe(
        {
            "name": "n",
            "task": task,
            "data": {"url": "d"},
            "search": {"space": {"lr": [0.1]}},
            "objective": {"metric": "val_loss", "mode": "min"},
        },
        root=tmp_path,
    )


@pytest.fixture
def script(recipe: Recipe) -> ModuleType:
    import_object("a_script:model", recipe.root)
    return sys.modules["a_script"]


def _forget() -> None:
    for name in ("a_script", "a_helper"):
        del sys.modules[name]


@pytest.fixture
def torch_as_found() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda script: setattr(script.Net, "depth", 2), r"a_script\.Net\.depth is 2 .* not there where its"),
        (lambda script: setattr(script.args, "width", 8), r"a_script\.args is \{'Namespace': .*8"),
        (lambda script: setattr(script, "SCALE", 2.0), r"a_script\.SCALE is 2\.0 .*, and 1\.0 where"),
        (lambda script: script.WEIGHTS.mul_(2), r"a_script\.WEIGHTS is "),
        (lambda _: torch.set_default_dtype(torch.float64), r"torch\.set_default_dtype is torch\.float64"),
        (lambda script: setattr(script, "UNREAD", 2), ""),
        (lambda script: setattr(script, "STARTED", 0.0), ""),
    ],
)
@pytest.mark.usefixtures("torch_as_found")
def test_what_a_script_has_set_is_refused_by_its_name(
    change: Callable[[Any], object], why: str, recipe: Recipe, script: ModuleType
) -> None:
    """But for what no code of the model reads, and what differs at each import."""
    change(script)
    caller = settings_here(recipe)
    _forget()
    torch.set_default_dtype(torch.float32)
    if not why:
        refuse_others(recipe, caller)
        return
    with pytest.raises(TaskError, match=why):
        refuse_others(recipe, caller)


def test_a_run_that_an_import_starts_is_refused_with_its_line_and_the_guard(tmp_path: Path) -> None:
    (tmp_path / "a_starter.py").write_text(
        "from cerebro_elastic import run\ndef main():\n    run('no.yaml')\ndef model():\n    pass\nmain()\n"
    )
    with pytest.raises(
        TaskError, match=r'a_starter\.py:6 starts a run \(`main\(\)`\).*`if __name__ == "__main__":`'
    ):
        import_object("a_starter:model", tmp_path)
    with pytest.raises(Exception, match=r"no\.yaml") as found:
        run("no.yaml")
    assert not isinstance(found.value, TaskError), "behind an import runs may start again"
