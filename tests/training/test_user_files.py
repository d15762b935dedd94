"""What a unit changes in the user's files is carried to the config's next unit, and is undone for others."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cerebro_elastic.errors import TaskError
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

def made(width, *names):
    class Made:
        pass

    for name in ("width", *names):
        setattr(Made, name, width)
    return Made

First, Second, Again = made(1, "more"), made(2), Net
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
    "a class attribute of the second class of a name": ("Second.width = 5", "Second.width", 5),
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
def test_a_deletion_is_carried_and_undone(module: ModuleType, tmp_path: Path, change: str) -> None:
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


STREAM = "(i for i in range(9))"
LEFT_BEHIND = {
    "a generator": (f"S = {STREAM}", "next(S)", "S of the file their_file, a generator, has changed"),
    "an array of objects": (
        "A = np.array([1, None])",
        "A[0] = 2",
        "A of the file their_file, a ndarray, has",
    ),
    "a large array": ("A = np.zeros(9_000_000)", "A[3] = 1", "A of the file their_file, a ndarray, has"),
    "of a class": (
        f"class R:\n    s = {STREAM}",
        "next(R.s)",
        r"s of the class their_file\.R, a generator, has",
    ),
    "made at its first use": ("S = None", f"S = {STREAM}", "S of the file .* was set to a generator"),
    "another in its place": ("A = np.array(['a'])", "A = np.array(['b'])", "A of .* was set to a ndarray"),
}


@pytest.mark.parametrize("case", LEFT_BEHIND)
def test_a_change_that_can_be_neither_carried_nor_undone_is_refused_for_all_configs(
    module: ModuleType, tmp_path: Path, case: str
) -> None:
    made, change, message = LEFT_BEHIND[case]
    files = their_file(module, tmp_path, made)
    unit(files, module, "pass")
    with pytest.raises(TaskError, match=message):
        unit(files, module, change)
    with pytest.raises(TaskError, match=message):
        unit(files, module, "pass")


def test_an_object_whose_changes_would_not_show_is_refused_before_training(
    module: ModuleType, tmp_path: Path
) -> None:
    files = their_file(module, tmp_path, "import queue\nQUEUE = queue.SimpleQueue()")
    with pytest.raises(TaskError, match=r"QUEUE of the file their_file is a .*SimpleQueue: whether"):
        unit(files, module, "pass")


@pytest.mark.parametrize(
    ("made", "change", "shown"),
    [
        ("import multiprocessing\nV = multiprocessing.Value('i', 0)", "V.value = 3", "V.value"),
        ("import threading\nV = threading.Event()", "V.set()", "V.is_set()"),
        ("V = set(range(100, 120))", "V.pop()", "[V.pop(), *V]"),
        ("V = np.random.default_rng(3)", "V.spawn(1)", "V.bit_generator.seed_seq.n_children_spawned"),
        ("L = []; V = L.append", "V(1)", "L"),
    ],
)
def test_an_object_that_keeps_a_value_hops_and_is_put_back(
    module: ModuleType, tmp_path: Path, made: str, change: str, shown: str
) -> None:
    files = their_file(module, tmp_path, made)
    for _ in range(2):
        with files.borrowed():
            at_setup = index_of(files)
            exec(change, vars(module))
            carried = files.changed(Encoder(at_setup=at_setup, strict=False))
        with files.borrowed():
            go_on(files, carried)
            after = repr(eval(shown, vars(module)))
        with files.borrowed():
            assert repr(eval(shown, vars(module))) != after


def test_an_object_that_another_file_keeps_has_not_changed(tmp_path: Path, imports_as_found: None) -> None:
    del imports_as_found
    (tmp_path / "their_second.py").write_text("SHARED = {'n': 1}")
    first = "import numpy as np, their_second\nA = np.array([their_second.SHARED, None], object)"
    (tmp_path / "their_first.py").write_text(first)
    import_object("their_first:A", tmp_path)
    with UserFiles(tmp_path).borrowed():
        pass


def test_an_object_made_at_its_first_use_that_stays_does_no_harm(module: ModuleType, tmp_path: Path) -> None:
    files = their_file(module, tmp_path, "TEXTS = None")
    for _ in range(2):
        assert unit(files, module, "TEXTS = np.array(['a']) if TEXTS is None else TEXTS") == {}
    with pytest.raises(TaskError, match="TEXTS of the file their_file, a ndarray, has"):
        unit(files, module, "TEXTS[0] = 'b'")


def their_file(module: ModuleType, folder: Path, made: str) -> UserFiles:
    """The file as if it had been imported with ``made`` in it."""
    exec(f"import numpy as np\n{made}", vars(module))
    return UserFiles(folder)


def test_the_program_that_runs_is_no_file_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    for name in ("__main__", "__mp_main__"):  # the second one is multiprocessing's
        monkeypatch.setitem(sys.modules, name, script)
    files = UserFiles(tmp_path)
    with files.borrowed():
        script.loader = object()  # type: ignore[attr-defined]
    assert files.owners == []
    assert hasattr(script, "loader")
