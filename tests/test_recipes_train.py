"""The recipes of real shapes train an epoch, at a reduced size."""

from __future__ import annotations

import gzip
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.interfaces import Search, SearchContext
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.registry import import_object, load
from cerebro_elastic.runs.from_recipe import plan_of
from cerebro_elastic.runs.start.prepare_data import prepare_recipe
from cerebro_elastic.system.devices import device_of, kind_here
from cerebro_elastic.training.unit_runner import UnitRunner

pytest.importorskip("peft")
pytest.importorskip("sklearn")  # here, for it sets environment variables when first imported

RECIPES = Path(__file__).parents[1] / "recipes"
SMALLER = {
    "coco_shaped": {"range(1500)": "range(60)"},
    "digits_sklearn": {},
    "criteo_shaped": {"40_000, 280": "900, 12"},
    "imagenet_shaped": {},
    "lora_sweep": {"argparse, statistics)": "statistics,)"},
    "pretrain_bytes": {"range(0, len(text), 1000)": "range(0, 20_000, 1000)"},
    "sentences_sweep": {"len(each) > 70": "len(each) > 150"},
    "text_ragged": {"[:200]": "[:40]"},
    "tabular": {'.zip")': '.zip", nrows=3000)'},
}
"""By recipe: what is replaced in its module."""

pytestmark = pytest.mark.usefixtures("imports_as_found")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipes, with Fashion-MNIST's files in miniature."""
    shutil.copytree(RECIPES, tmp_path / "recipes")
    for path in RECIPES.glob("*.py"):  # another test may have imported the original
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    rng = np.random.default_rng(0)
    for name, rows in (("train", 90), ("t10k", 30)):
        for kind, content in (("images-idx3", rng.bytes(16 + rows * 784)), ("labels-idx1", bytes(8 + rows))):
            (tmp_path / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    return tmp_path / "recipes"


@pytest.mark.parametrize("name", sorted(SMALLER))
def test_a_shipped_recipe_trains(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [(RECIPES / f"{name}.{suffix}").read_text().count("\n") for suffix in ("yaml", "py")]
    assert sum(lines) < (40 if name == "digits_sklearn" else 61), "a newcomer reads both"
    if name == "imagenet_shaped":
        monkeypatch.setenv("FASHION_MNIST", str(folder.parent))
        import_object("fashion_shards:write", folder)(folder / "shards")
    module, recipe_file = folder / f"{name}.py", folder / f"{name}.yaml"
    for former, smaller in SMALLER[name].items():
        assert former in module.read_text()
        module.write_text(module.read_text().replace(former, smaller))
    recipe_file.write_text(recipe_file.read_text().replace("workers: 1", "workers: 0"))

    if name in ("lora_sweep", "sentences_sweep"):
        from support.tiny_bases import write_base, write_encoder_package

        monkeypatch.syspath_prepend(folder)
        write_encoder_package(folder)
        write_base(folder / "bytes_gpt", "gpt2")
    recipe = load_recipe(recipe_file)
    url = str(folder / "data")
    prepare_recipe(recipe, url)
    manifest = read_manifest(url)
    plan = plan_of(recipe, name, len(manifest.train), len(manifest.valid))
    spec = Spec(plan, recipe.resolved(), "", url, manifest.digest, str(recipe.root), {}, str(folder), "0")
    runner = UnitRunner(spec, folder / "cache", device_of(kind_here(), 0))
    search: Search = load("cerebro.search", recipe.search.method)(recipe)
    hparams = search.propose(SearchContext(partitions=plan.partitions, epochs=plan.epochs))[0].hparams
    state, metrics = None, {}
    for partition in range(plan.partitions):
        config = Config("c0000", hparams, visited=tuple(range(partition)))
        result = runner.perform(runner.job(config, Unit("c0000", 0, partition), state))
        state, metrics = result.state, result.metrics
    assert recipe.objective is not None
    assert math.isfinite(metrics[recipe.objective.metric])
