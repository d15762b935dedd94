"""The recipes that come with the package: short, explained, and accepted by everything that checks."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from cerebro_elastic.core.model.interfaces import Search, SearchContext
from cerebro_elastic.errors import MissingExtra
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.registry import import_object, install_extra, load
from cerebro_elastic.training.hparams import checked_dataset, task_hparams
from cerebro_elastic.training.task import Task
from cerebro_elastic.training.unit_runner import loader_settings, make_task

pytest.importorskip("sklearn.datasets")  # here, for they set environment variables when first imported
with patch.dict(os.environ, KERAS_BACKEND="jax"):
    pytest.importorskip("keras")
pytest.importorskip("peft")
from support.tiny_bases import write_base, write_encoder_package

COLUMNS = {
    "tiny_gpt:load": {"text"},
    "lora_sweep:load": {"text"},
    "pretrain_bytes:load": {"text"},
    "my_lightning:load": {"x", "y"},
    "my_torch:load": {"x", "y"},
    "sentences_sweep:load": {"text", "label"},
    "text_ragged:load": {"text", "label"},
    "coco_shaped:load": {"image", "boxes", "kinds"},
    "criteo_shaped:load": {"numbers", "categories", "clicked"},
    "tabular:load": {"month", "hour", "carrier", "origin", "dest", "tailnum", "late"},
}
ROWS = {
    "text_ragged": 900,
    "coco_shaped": 1500,
    "lora_sweep": 150,
    "pretrain_bytes": 400,
    "sentences_sweep": 400,
}
"""At least so many, where they are fewer."""
RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.yaml"))


pytestmark = pytest.mark.usefixtures("imports_as_found")


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of Keras sets it for its process."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")


def _start(recipe: Recipe) -> SearchContext:
    return SearchContext(partitions=recipe.data.partitions, epochs=recipe.epochs, nodes=recipe.nodes.min)


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [("keras", "keras", "keras"), ("jax", "jax", "jax"), ("sklearn", "threadpoolctl", "sklearn")],
)
def test_a_missing_package_is_named_with_its_extra(
    kind: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(RECIPES[0].parent / f"digits_{kind}.yaml")
    for name in [name for name in sys.modules if name.startswith(f"cerebro_{kind}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"'{package}'.*{re.escape(install_extra(extra))}"):
        make_task(recipe)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_is_valid(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text()
    assert text.startswith("# "), "a comment says what it shows"
    assert len(text.splitlines()) < 40
    recipe = load_recipe(path)
    search: Search = load("cerebro.search", recipe.search.method)(recipe)
    configs = [proposal.hparams for proposal in search.propose(_start(recipe))]
    assert configs
    root = recipe.root
    if path.stem == "lora_sweep":
        root = write_base(tmp_path / "bytes_gpt", "gpt2").parent
    if path.stem == "sentences_sweep":
        write_encoder_package(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
    task: Task = load("cerebro.tasks", recipe.task.kind)(recipe.task, root)
    for hparams in configs:
        task.check(task_hparams(task, loader_settings(recipe), hparams))
    if (dataset := checked_dataset(recipe, configs)) is not None:
        assert dataset.lengths == {"train": 1797}
        return
    assert recipe.data.source is not None
    if ":" not in recipe.data.source:  # files: tests/test_recipes_train.py writes them
        return
    try:
        columns = import_object(recipe.data.source, recipe.root)()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    columns = columns.get("train", columns)
    assert columns.keys() == COLUMNS.get(recipe.data.source, {"image", "label"})
    assert {len(column) >= ROWS.get(path.stem, 1797) for column in columns.values()} == {True}


def test_every_kind_of_recipe_is_shipped() -> None:
    assert {"digits", "digits_torch", "tiny_gpt"} <= {path.stem for path in RECIPES}
