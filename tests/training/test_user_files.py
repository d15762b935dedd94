"""What a unit changes in the user's files is carried to the config's next unit, and is undone for others."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cerebro_elastic.registry import import_object
from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.user_files import UserFiles

FILE = """
from os.path import join

COUNT = 1
NAME = "first"
NOTHING = None
SEEN = ["a"]

def step():
    return COUNT

class Net:
    width = 4
    names = ("a",)
    best = None

    def count(self):
        return self.width
"""

CHANGES = {
    "a number": ("COUNT = 2", "COUNT", 2),
    "a number that is an equal one of another type": ("COUNT = True", "COUNT", True),
    "a text": ("NAME = 'second'", "NAME", "second"),
    "nothing becomes something": ("NOTHING = [1]", "NOTHING", [1]),
    "a list": ("SEEN.append('b')", "SEEN", ["a", "b"]),
    "a class attribute": ("Net.width = 5", "Net.width", 5),
    "a class attribute of nothing": ("Net.best = 0.5", "Net.best", 0.5),
    "a class attribute more": ("Net.more = 1", "Net.more", 1),
    "a function's attribute": ("step.calls = 3", "step.calls", 3),
    "a method's attribute": ("Net.count.calls = [1]", "Net.count.calls", [1]),
    "a name more": ("MORE = 7", "MORE", 7),
}
GONE = {"a number": ("del COUNT", "COUNT"), "a class attribute": ("del Net.width", "Net.width")}


@pytest.fixture
def module(tmp_path: Path, imports_as_found: None) -> ModuleType:
    del imports_as_found
    (tmp_path / "their_file.py").write_text(FILE)
    import_object("their_file:Net", tmp_path)
    import their_file  # type: ignore[import-not-found]

    return their_file


def value(module: ModuleType, path: str) -> Any:
    """What a name, or a name in a name, is bound to; ``...`` if it is not."""
    thing: Any = module
    for name in path.split("."):
        thing = vars(thing).get(name, ...) if thing is not ... else ...
    return thing


def unit(files: UserFiles, module: ModuleType, code: str) -> dict[str, Any]:
    """A unit that runs ``code`` in the file: what its config carries."""
    with files.borrowed():
        at_setup = index_of(files)
        exec(code, vars(module))
        return files.changed(Encoder(at_setup=at_setup, strict=False))


def index_of(files: UserFiles) -> ObjectIndex:
    encoder = Encoder(strict=False)
    files.index(encoder)
    return encoder.index


def go_on(files: UserFiles, carried: dict[str, Any]) -> None:
    """As the config's next unit does."""
    files.restore(Decoder(index_of(files), torch.device("cpu")), carried)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_carried_and_undone(module: ModuleType, tmp_path: Path, change: str) -> None:
    code, path, new = CHANGES[change]
    files, before = UserFiles(tmp_path), value(module, path)
    before = list(before) if isinstance(before, list) else before
    for _ in range(2):
        carried = unit(files, module, code)
        assert value(module, path) == before
        assert type(value(module, path)) is type(before)
        with files.borrowed():
            go_on(files, carried)
            assert value(module, path) == new
            assert type(value(module, path)) is type(new)
        assert value(module, path) == before


@pytest.mark.parametrize("change", GONE)
def test_what_is_gone_is_carried_and_undone(module: ModuleType, tmp_path: Path, change: str) -> None:
    code, path = GONE[change]
    files, before = UserFiles(tmp_path), value(module, path)
    carried = unit(files, module, code)
    assert value(module, path) == before
    with files.borrowed():
        go_on(files, carried)
        assert value(module, path) is ...
    assert value(module, path) == before


def test_a_unit_that_changes_nothing_carries_nothing(module: ModuleType, tmp_path: Path) -> None:
    code = "COUNT = 1; NAME = 'first'; join = join; class_of_nets = None; del class_of_nets"
    assert unit(UserFiles(tmp_path), module, code) == {}
