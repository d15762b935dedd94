"""What users import: every name is there and documented, and the examples in its docstring hold."""

from __future__ import annotations

import doctest
import inspect
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import cerebro_elastic
from cerebro_elastic import Run, RunCallback, RunResult
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.errors import RecipeError, RunError
from support.waiting import wait_for

METHODS = [f"Run.{name}" for name in dir(Run) if ">>>" in (inspect.getdoc(getattr(Run, name)) or "")]
LIVE = ("Run.add", "Run.stop", "Run.resume", "join")
"""Their examples need a live run, in this order; the last one lasts until its end."""

MODEL = """
import time
from pathlib import Path

from torch import nn


class Slow(nn.Module):
    def forward(self, x):
        if Path(__file__).with_name("slowly").exists():
            time.sleep(0.2)
        return x


def model():
    return nn.Linear(4, 2)


def slow_model():
    return nn.Sequential(Slow(), nn.Linear(4, 2))
"""

DATA = """
import numpy as np


def load():
    x = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}
"""

RECIPE = """
epochs: 2
nodes: 2
task: {kind: torch, model_fn: "sweep_model:model", loss: cross_entropy, optimizer: SGD,
       metrics: {acc: accuracy}}
data: {source: "sweep_data:load", partitions: 2, valid: 0.2, batch_size: 20}
search: {space: {lr: [0.1, 0.001]}}
objective: {metric: val_acc, mode: max}
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The examples' working directory: ``sweep.yaml``, and its run, as the example of ``run`` has it."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "sweep.yaml").write_text(RECIPE)
    (folder / "sweep_model.py").write_text(MODEL)
    (folder / "sweep_data.py").write_text(DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MPLBACKEND", "agg")
        cerebro_elastic.run("sweep.yaml", seed=1)
        yield folder


def wait_until_running(run: Run) -> None:
    """Its configs join one by one, some of them before its nodes."""
    wait_for(lambda: (now := run.status()).phase == "running" and len(now.configs) > 1, "two configs")


def try_example(name: str) -> None:
    """Do what the docstring of a public name shows."""
    names: dict[str, Any] = {public: getattr(cerebro_elastic, public) for public in cerebro_elastic.__all__}
    text = inspect.getdoc(attrgetter(name)(cerebro_elastic)) or ""
    test = doctest.DocTestParser().get_doctest(text, {**names, "Path": Path}, name, None, None)
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failed, tried = runner.run(test, out=said.write)
    assert tried > 0, f"{name} has no example"
    assert failed == 0, said.getvalue()


@pytest.mark.cluster
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("name", [name for name in [*cerebro_elastic.__all__, *METHODS] if name not in LIVE])
def test_the_examples_hold(name: str) -> None:
    try_example(name)


@pytest.mark.cluster
@pytest.mark.usefixtures("sweep")
def test_the_examples_of_live_runs_hold() -> None:
    task = {"model_fn": "sweep_model:slow_model"}
    slowly = Path("slowly").absolute()
    slowly.touch()

    def hasten() -> None:
        """The rest of the run may be fast, once a machine has joined."""
        while handle.status().phase == "running" and len(handle.status().nodes) < 3:
            time.sleep(0.1)
        slowly.unlink()

    with (
        ThreadPoolExecutor(1) as pool,
        cerebro_elastic.run("sweep.yaml", run_id="live", epochs=40, task=task, wait=False) as handle,
    ):
        wait_until_running(handle)
        hastening = pool.submit(hasten)
        for name in LIVE:
            assert handle.status().phase == "running", handle.status()
            try_example(name)
        hastening.result()
        assert handle.wait(120).state("best") is not None
        assert handle.status().phase == "ended"


class Collect(RunCallback):
    """Records its calls; fails at the unit with the number ``fails_at``."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.units: list[tuple[str, int, int]] = []
        self.epochs: list[tuple[str, int]] = []
        self.results: list[RunResult] = []
        self._fails_at = fails_at

    def on_unit_end(self, visit: Visit) -> None:
        self.units.append((visit.unit.config, visit.unit.epoch, visit.unit.partition))
        if len(self.units) == self._fails_at:
            raise ZeroDivisionError("of a user's")

    def on_epoch_end(self, config: str, epoch: int, metrics: Mapping[str, float]) -> None:
        assert "val_acc" in metrics or "val_loss" in metrics
        self.epochs.append((config, epoch))

    def on_run_end(self, result: RunResult) -> None:
        self.results.append(result)


@pytest.mark.cluster
@pytest.mark.usefixtures("sweep")
def test_a_callback_that_fails_stops_the_run_which_goes_on_later() -> None:
    failing, later = Collect(fails_at=2), Collect()
    with pytest.raises(ZeroDivisionError, match="of a user's"):
        cerebro_elastic.run("sweep.yaml", run_id="failing", callbacks=[failing])
    assert (len(failing.units), failing.results) == (2, [])
    result = cerebro_elastic.run("sweep.yaml", run_id="failing", callbacks=[later])
    assert [row.status for row in result.leaderboard] == ["finished"] * 2
    assert later.results == [result]
    assert not {*failing.units} & {*later.units}, "none is reported twice"


@pytest.mark.cluster
@pytest.mark.usefixtures("sweep")
def test_a_handle_ends_its_run_with_its_block() -> None:
    task = {"model_fn": "sweep_model:slow_model"}
    Path("slowly").touch()
    with cerebro_elastic.run("sweep.yaml", run_id="closed", epochs=99, task=task, wait=False) as handle:
        wait_until_running(handle)
        assert set(handle.status().configs) == {"c0000", "c0001"}
        with pytest.raises(TimeoutError, match="it continues"):
            handle.wait(0.01)
    assert handle.status().phase == "stopped"
    with pytest.raises(RunError, match="the same call of `run` continues it"):
        handle.wait()


def test_a_wrong_recipe_is_refused_at_once_and_wait_raises_later_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep_model.py").write_text(MODEL)
    Path("sweep_data.py").write_text(DATA)
    with pytest.raises(RecipeError, match="epochs"):
        cerebro_elastic.run({}, epochs=0, wait=False)
    shutil.copytree(Path(__file__).parent, tmp_path / "taken")  # a folder that is no run's
    recipe = {"name": "taken", "task": {"kind": "torch", "model_fn": "sweep_model:model", "loss": "mse_loss"},
              "data": {"source": "sweep_data:load"}, "search": {"space": {"lr": [0.1]}}}  # fmt: skip
    handle = cerebro_elastic.run(recipe, home=".", wait=False)
    with pytest.raises(RunError, match="is no run's folder"):
        handle.wait(60)
    assert (handle.status().phase, "no run's folder" in handle.status().message) == ("failed", True)


def test_names_are_imported_on_use() -> None:
    assert set(cerebro_elastic.__all__) <= set(dir(cerebro_elastic))
    code = "import sys, cerebro_elastic; print(*(m for m in sys.modules if m.startswith('cerebro_elastic.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cerebro_elastic.system", "cerebro_elastic.system.version"]
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = cerebro_elastic.rum  # type: ignore[attr-defined]
