"""Functions and classes in a recipe, in a script."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path

import pytest

from cerebro_elastic.errors import TaskError
from cerebro_elastic.front_end.objects import References, root_of
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.registry import import_object


def test_functions_stand_for_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, name in (("here", "objects_here"), ("there", "objects_there")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("def f(): return 1\nclass Net: pass\n")
        monkeypatch.syspath_prepend(tmp_path / folder)
    here, there = map(importlib.import_module, ("objects_here", "objects_there"))
    root = root_of(here.Net)
    assert root == tmp_path / "here"
    sections = {
        "task": {"kind": "torch", "model_fn": here.Net, "loss": importlib.import_module("math").dist,
                 "metrics": {"far": there.f}, "args": {"n": 1}},
        "data": {"source": there.f},
        "search": {"space": {"lr": [0.1]}},
    }  # fmt: skip
    recipe = load_recipe(References(root).in_recipe(sections), root=root)
    assert recipe.task.model_fn == "objects_here:Net"
    assert recipe.task.loss == "math:dist"
    assert recipe.data.source == recipe.task.metrics["far"]
    sys.modules.pop("objects_there")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("there")])
    assert import_object(recipe.data.source, root)() == 1
    for thing in (lambda: 1, partial(here.f), test_functions_stand_for_their_names.__call__):
        with pytest.raises(TaskError, match=r"top level of a \.py file"):
            References(root).of(thing)
