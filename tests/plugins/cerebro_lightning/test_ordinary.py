"""What works in an ordinary fit works as units, bit for bit, or is refused by name."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

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

from cerebro_elastic.errors import CheckpointError, TaskError
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection

TWO = ORDERS[:2]
CUTS: Stops = {(0, 0): (2,), (0, 2): (1,), (1, 0): (1,), (1, 2): (1, 3)}
ACCUMULATING = {"accumulate_grad_batches": 4, "gradient_clip_val": 0.1}


def case(module: str, *callbacks: Any, **parts: Any) -> Case:
    callbacks = tuple(f"ordinary_zoo:{name}" if isinstance(name, str) else name for name in callbacks)
    return Case(f"ordinary_zoo:{module}", callbacks=callbacks, **{"orders": TWO, **parts})


def prunes(function: str, **settings: Any) -> dict[str, Any]:
    return {"class": f"ordinary_zoo:{function}", "args": settings}


UNFREEZES = {"class": "BackboneFinetuning", "args": {"unfreeze_backbone_at_epoch": 1}}
STOPS = {"class": "EarlyStopping", "args": {"monitor": "val_loss"}}

CASES = {
    "lazy layers": case("Lazy"),
    "lazy layers, accumulating": case("Lazy", trainer=ACCUMULATING),
    "lazy layers in configure_model": case("LazyConv"),
    "lazy layers, seen to by the constructor": case("LazyDry"),
    "a lazy layer of one's own": case("LazyOwn"),
    "buffers that grow, come and go": case("Buffers"),
    "another precision": case("Widened"),
    "weights that are tied": case("Tied"),
    "an optimizer set up again": case("OptimizerAnew"),
    "sparse gradients by hand": case("Sparse", validates=False),
    "sparse gradients, accumulating": case("SparseAutomatic", trainer={"accumulate_grad_batches": 4}),
    "odd optimizer state": case("Odd"),
    "lbfgs": case("Lbfgs"),
    "an optimizer in an optimizer": case("SharpnessAware"),
    "lookahead": case("LooksAhead"),
    "two optimizers as one": case("Combined"),
    "an optimizer with a state dict of its own": case("CountsBeside"),
    "rates that are tensors": case("TensorRates"),
    "torchmetrics' wrappers": case("Wrapped"),
    "collections of metrics": case("LoggedMetrics"),
    "parametrizations": case("Normed"),
    "quantization-aware": case("Quantized", orders=ORDERS),
    "compiled": case("Compiled"),
    "complex weights": case("ComplexWeights"),
    "pruning by hand": case("PrunedByHand", orders=ORDERS),
    "pruning": Case("Net", callbacks=[prunes("pruning")]),
    "pruning that is not permanent": Case(
        "Net",
        callbacks=[prunes("pruning", make_pruning_permanent=False, use_lottery_ticket_hypothesis=False)],
    ),
    "pruning of rows": Case(
        "Net",
        callbacks=[prunes("random_pruning", resample_parameters=True, prune_on_train_epoch_end=False)],
    ),
    "callbacks that the module brings": case("BringsCallbacks", orders=ORDERS),
    "layers thawed one by one": case("Finetuned", "ByLayers", orders=ORDERS),
    "a backbone thawed": case("Finetuned", UNFREEZES, orders=ORDERS),
    "the trainer": case("Watching"),
    "the trainer, by a callback": case(
        "Watching", "Watcher", trainer={"check_val_every_n_epoch": 2}, orders=(*ORDERS, ORDERS[0])
    ),
    "the trainer, accumulating": case(
        "Watching",
        "Watcher",
        STOPS,
        trainer={"accumulate_grad_batches": 2, "limit_val_batches": 2, "min_epochs": 2},
    ),
    "the trainer, without validation": case("Watching", validates=False),
    "the trainer, with none of it": case("Watching", trainer={"limit_val_batches": 0}),
}


@pytest.fixture(autouse=True)
def _without_warnings() -> Iterator[None]:
    """The warnings of an ordinary fit of such a module are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_units_in_parts_equal_one_ordinary_fit(case: Case) -> None:
    expected = ordinary_fit(case)
    found = outcome(list(units(case, CUTS)))
    for part in dataclasses.fields(expected):
        assert not differences(getattr(expected, part.name), getattr(found, part.name), part.name)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("Grown", "Grown: layers or parameters have come, gone or been replaced"),
        ("Swapped", r"Swapped\.net\.1: layers or parameters have come, gone"),
        ("FewerGroups", "FewerGroups: layers or parameters have come, gone"),
        ("ParametrizedLater", r"ParametrizedLater\.net\.0: layers or parameters have come, gone"),
        ("NormedLater", r"NormedLater\.net\.0: layers or parameters have come, gone"),
        ("Hooked", r"net\.0 has got or lost a hook during training"),
        ("OtherOptimizer", "had the optimizers SGD and has Adam now"),
    ],
)
def test_state_that_cannot_be_rebuilt_is_refused_by_name(module: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        list(units(case(module)))


def test_callbacks_that_the_module_brings_are_refused_before_training() -> None:
    with pytest.raises(TaskError, match="the callback StochasticWeightAveraging cannot be used"):
        task("BringsAveraging").check({})
    task("BringsCallbacks").check({})


@pytest.mark.parametrize("module", ["Lazy", "LazyConv", "Buffers", "PrunedByHand", "Wrapped"])
def test_a_module_built_from_a_state_computes_the_same(module: str) -> None:
    *_, (unit, result) = units(case(module))
    loaded = task(module).load_module({}, hop(result.state), unit.seed)
    assert not differences(dict(loaded.state_dict()), dict(result.state["state_dict"]))
    loaded.eval()
    loaded.net(torch.zeros(2, 6))


@pytest.mark.parametrize(
    ("module", "made", "message"),
    [
        ("lightning_zoo:Net", {"width": 5}, "the checkpoint does not fit Net: .*size mismatch"),
        (
            "ordinary_zoo:PrunedByHand",
            {"width": 5},
            r"made by a model with PrunedByHand\.net\.0 built as .*, here it is ",
        ),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(module: str, made: dict[str, int], message: str) -> None:
    (_, result), *_ = list(units(Case(module, hparams=made, orders=TWO)))[3:]
    other = Case(module, orders=TWO)
    with pytest.raises(CheckpointError, match=message):
        LightningTask(other.section, FOLDER).train(job(other, 1, 1, hop(result.state)))


def test_a_model_that_stays_as_built_carries_no_structure() -> None:
    *_, (_, result) = units(Case("BatchNorm", orders=TWO))
    assert result.state["cerebro"]["structure"] == {}


def task(module: str) -> LightningTask:
    section = LightningSection.model_construct(
        module=f"ordinary_zoo:{module}", args={}, trainer={}, callbacks=()
    )
    return LightningTask(section, FOLDER)
