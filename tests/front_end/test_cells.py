"""What is defined in the cells of a notebook, written to a file: by IPython itself, as notebooks do."""

from __future__ import annotations

import atexit
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from cerebro_elastic.errors import TaskError
from cerebro_elastic.front_end.cells import is_in_cell, written

Cell = Callable[[str], Any]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """Runs a cell; returns its value if it is a name."""
    for name in ("__main__", "builtins"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    hooks = (sys.displayhook, sys.excepthook)
    shell = InteractiveShell(history_length=0)
    shell.history_manager.enabled = False

    def run(text: str) -> Any:
        shell.run_cell(text, store_history=True).raise_error()
        return shell.user_ns.get(text)

    yield run
    shell.atexit_operations()
    atexit.unregister(shell.atexit_operations)
    sys.displayhook, sys.excepthook = hooks


def imported(name: str, folder: Path) -> Any:
    """As another process imports it: without the notebook."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name.replace('.', '/')}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_class_comes_with_all_that_it_uses(cell: Cell, tmp_path: Path) -> None:
    cell("import numpy as np\nfrom math import tau as circle, floor\nfrom collections import deque as Queue")
    cell("SIZES = (1, 2)\nnames = {'a': [1.5, None]}\n\ndef even(n):\n    return n == 0 or not_even(n - 1)")
    cell("def odd(n):\n    return n != 0 and even(n - 1)\nnot_even = odd\n\nclass Base:\n    pass")
    cell("def marked(kind):\n    kind.mark = 'first'\n    return kind")
    cell(
        "@marked\nclass Net(Base):\n    size = sum(SIZES)\n"
        "    def __init__(self): self.q = Queue([floor(2.5)])"
    )
    cell("unused = open('/dev/null')")
    net = cell("Net")
    assert is_in_cell(net)
    name = written("Net", tmp_path)
    again = imported(name, tmp_path).Net
    assert (again.mark, again.size, list(again().q)) == ("first", 3, [2])
    assert written("even", tmp_path) != name
    assert imported(written("even", tmp_path), tmp_path).even(10)
    assert written("Net", tmp_path) == name, "as long as it is the same"
    cell("@marked\nclass Net(Base):\n    size = 7\n\n    def late(self): return circle, np.ones(2), names")
    other = imported(written("Net", tmp_path), tmp_path).Net
    assert other.size == 7, "the last definition"
    assert other().late()[2] == {"a": [1.5, None]}
    assert not is_in_cell(Path)
    cell("import numpy\nx = numpy.ones(3)\ndef max(*values): return 'ours'")
    cell("def f(x=1):\n    size = [max(x, 2), open]\n    return size[0]")
    assert imported(written("f", tmp_path), tmp_path).f() == "ours", "local names are no globals"


def test_a_value_that_cannot_be_pickled_is_named(cell: Cell, tmp_path: Path) -> None:
    cell("def g(): return h\nh = __import__('threading').Lock()\ndef f(): return g()")
    with pytest.raises(TaskError, match="g uses h, a lock of the notebook"):
        written("f", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("import numpy\ndata = numpy.ones(3)\ndef f(): return data.sum()", 3),
        ("exec('def f(): return 1')", 1),
        ("def f(): return 1\nexec('def f(): return 2')", 2),
        ("a = []\na.append(a)\ndef f(): return len(a[0][0])", 1),
        ("class Box:\n    pass\nbox = Box()\ndef f(): return type(box) is Box", True),
        ("double = [lambda x: 2 * x]\ndef f(): return double[0](2)", 4),
    ],
)
def test_what_has_no_source_is_pickled(cell: Cell, tmp_path: Path, text: str, result: object) -> None:
    cell(text)
    assert imported(written("f", tmp_path), tmp_path).f() == result


def test_a_pickle_is_that_of_the_notebook(cell: Cell, tmp_path: Path) -> None:
    cell("import numpy\ntable = numpy.arange(3)\ndef f(): return table.sum()")
    name = written("f", tmp_path)
    assert written("f", tmp_path) == name
    (pickled,) = (tmp_path / "cerebro_cells").glob("*.pickle")
    pickled.write_bytes(b"another")
    with pytest.raises(TaskError, match="not as the notebook has written it"):
        imported(name, tmp_path)
    pickled.unlink()
    with pytest.raises(TaskError, match="cannot be read"):
        imported(name, tmp_path)


def test_a_class_may_derive_from_the_one_whose_name_it_takes(cell: Cell, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        base = "Net" if number > 1 else "object"
        cell(f"class Net({base}):\n    def of_{number}(self): return {number}")
    net = imported(written("Net", tmp_path), tmp_path).Net()
    assert (net.of_1(), net.of_2(), net.of_3()) == (1, 2, 3)


def test_annotations_stay_texts(cell: Cell, tmp_path: Path) -> None:
    cell("from __future__ import annotations")
    cell("class Node:\n    def next(self) -> Node | Unknown: ...")
    node = imported(written("Node", tmp_path), tmp_path).Node
    assert node.next.__annotations__ == {"return": "Node | Unknown"}
