"""The contract of what hops as a table: each module is carried, refused by name, or scratch."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from lightning_harness import (
    FOLDER,
    ORDERS,
    Case,
    Stops,
    differences,
    hop,
    job,
    ordinary_fit,
    outcome,
    units,
)
from torch import Tensor

from cerebro_elastic.errors import CheckpointError, TaskError
from cerebro_elastic.hop.objects import object_graph
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection
from cerebro_lightning.state import plain_tensors

TWO = ORDERS[:2]
CUTS: Stops = {(0, 2): (1,), (1, 0): (1,)}


class Row(NamedTuple):
    module: str
    """``Name`` of a module in ``alias_zoo``, or ``zoo:Name``."""
    verdict: str = "carried"
    """``carried``, ``scratch``, or else the refusal."""
    callbacks: tuple[Any, ...] = ()
    settings: dict[str, Any] = {}  # noqa: RUF012
    """Of the case."""

    @property
    def case(self) -> Case:
        module = self.module if ":" in self.module else f"alias_zoo:{self.module}"
        return Case(module, callbacks=self.callbacks, **{"orders": TWO, **self.settings})


def ordinary(module: str, *callbacks: Any, verdict: str = "carried", **settings: Any) -> Row:
    named = tuple(f"ordinary_zoo:{each}" if isinstance(each, str) else each for each in callbacks)
    return Row(f"ordinary_zoo:{module}", verdict, named, settings)


def prunes(function: str, **settings: Any) -> Row:
    callback = {"class": f"ordinary_zoo:{function}", "args": settings}
    return Row("lightning_zoo:Net", callbacks=(callback,), settings={"orders": ORDERS})


GONE = "layers or parameters have come, gone or been replaced"
ACCUMULATING = {"accumulate_grad_batches": 4, "gradient_clip_val": 0.1}
UNFREEZES = {"class": "BackboneFinetuning", "args": {"unfreeze_backbone_at_epoch": 1}}
EVERY_SECOND = {"check_val_every_n_epoch": 2}
KEPT = (
    "WritesThroughViews",
    "SchedulerObject",
    "References",
    "OnTrainer",
    "NewFunction",
    "Harmless",
    "DropsWeights",
)
SCRATCH = ("SchedulerClosure", "ForeignObject", "LeavesOut")
"""What the next unit lacks. The same values show it as ``cerebro check`` compares."""

TABLE = {
    **{module: Row(module) for module in KEPT},
    **{module: Row(module, "scratch") for module in SCRATCH},
    "lazy layers": ordinary("Lazy"),
    "buffers that grow, come and go": ordinary("Buffers"),
    "an optimizer set up again": ordinary("OptimizerAnew"),
    "sparse gradients by hand": ordinary("Sparse", validates=False),
    "lbfgs": ordinary("Lbfgs"),
    "an optimizer with a state dict of its own": ordinary("CountsBeside"),
    "torchmetrics' wrappers": ordinary("Wrapped"),
    "collections of metrics": ordinary("LoggedMetrics"),
    "parametrizations": ordinary("Normed"),
    "pruning by hand": ordinary("PrunedByHand", orders=ORDERS),
    "pruning": prunes("pruning"),
    "callbacks that the module brings": ordinary("BringsCallbacks", orders=ORDERS),
    "a backbone thawed": ordinary("Finetuned", UNFREEZES, orders=ORDERS),
    "the trainer, by a callback": ordinary(
        "Watching", "Watcher", trainer=EVERY_SECOND, orders=(*ORDERS, ORDERS[0])
    ),
    "an iterator": Row("LoaderIterator", r"\.batches is a .*DataLoaderIter: its position"),
    "a table of pandas": Row("Table", r"Table\.table, a DataFrame, has changed during training"),
    "global variables": Row("Globals", r"alias_zoo\.STEPS, alias_zoo\.TABLE, alias_zoo\.ARRAY changed in"),
    "a class attribute": Row("ClassAttribute", r"alias_zoo\.ClassAttribute\.\w+.* changed in training"),
    "a setting": Row("SetsDtype", r"torch\.set_default_dtype changed from torch\.float32 to torch\.float64"),
    "a walk through the loader": Row("WalksThrough", r"walks through the training batches itself"),
    "a hook of a layer": ordinary("Hooked", verdict=r"net\.0 has got or lost a hook during training"),
    "a layer of another class": ordinary("Swapped", verdict=rf"Swapped\.net\.1: {GONE}"),
    "another optimizer": ordinary("OtherOptimizer", verdict="had the optimizers SGD and has Adam now"),
}


@pytest.fixture(autouse=True)
def _without_warnings() -> Iterator[None]:
    """The warnings of an ordinary fit of such a module are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_a_module_is_carried_refused_by_name_or_scratch(row: Row) -> None:
    if row.verdict not in ("carried", "scratch"):
        with pytest.raises(TaskError, match=row.verdict):
            list(units(row.case))
        return
    expected = ordinary_fit(row.case)
    done = list(units(row.case, CUTS))
    found = outcome(done)
    for tensors in done[-1][1].state["cerebro"].get("left out", {}).values():
        found.weights.update(tensors)
    parts = [part.name for part in dataclasses.fields(expected)]
    differ = [d for name in parts for d in differences(getattr(expected, name), getattr(found, name), name)]
    assert bool(differ) == (row.verdict == "scratch"), differ


def test_what_is_left_out_is_noted_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_graph, "_noted", set())
    with caplog.at_level("INFO", "cerebro"):
        list(units(Case("alias_zoo:NewFunction", orders=ORDERS[:1])))
    assert [record.fields["name"] for record in caplog.records if hasattr(record, "fields")] == [
        "NewFunction.function"
    ]


def test_callbacks_that_the_module_brings_are_refused_before_training() -> None:
    with pytest.raises(TaskError, match="the callback StochasticWeightAveraging cannot be used"):
        task("BringsAveraging").check({})
    task("BringsCallbacks").check({})


@pytest.mark.parametrize("module", ["Lazy", "PrunedByHand", "Wrapped"])
def test_a_module_built_from_a_state_computes_the_same(module: str) -> None:
    *_, (unit, result) = units(ordinary(module).case)
    loaded = task(module).load_module({}, hop(result.state), unit.seed)
    assert not differences(dict(loaded.state_dict()), dict(result.state["state_dict"]))
    loaded.eval()
    loaded.net(torch.zeros(2, 6))


@pytest.mark.parametrize("module", ["lightning_zoo:Net", "ordinary_zoo:PrunedByHand"])
def test_a_checkpoint_of_another_model_is_refused(module: str) -> None:
    (_, result), *_ = list(units(Case(module, hparams={"width": 5}, orders=TWO)))[3:]
    other = Case(module, orders=TWO)
    with pytest.raises(CheckpointError, match=r"the checkpoint does not fit \w+: .*size mismatch"):
        LightningTask(other.section, FOLDER).train(job(other, 1, 1, hop(result.state)))


def test_a_model_that_stays_as_built_carries_no_structure() -> None:
    *_, (_, result) = units(Case("BatchNorm", orders=TWO))
    assert result.state["cerebro"]["structure"] == {}


def task(module: str) -> LightningTask:
    section = LightningSection.model_construct(
        module=f"ordinary_zoo:{module}", args={}, trainer={}, callbacks=()
    )
    return LightningTask(section, FOLDER)


class Tracked(Tensor):
    """As monai's ``MetaTensor``, what is computed of it is of its class."""


def test_a_logged_tensor_is_one_of_torch() -> None:
    loss = torch.ones(2).as_subclass(Tracked).mean()
    tree = plain_tensors({"loss": {"value": loss, "step": 1}})
    assert (type(loss), type(tree["loss"]["value"]), tree["loss"]["step"]) == (Tracked, Tensor, 1)
