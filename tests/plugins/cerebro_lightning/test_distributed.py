"""The Lightning matrix: every feature of a module, under every parallelism, with hops between them.

Every unit of a run has another parallelism than the one before, and the run's end, its logged rows, metrics
and hooks are those of training on one rank, within the rounding of another order of additions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_harness import FOLDER, ORDERS, Case, Outcome, differences, job, outcome, units
from lightning_ranks import CHOICES, units_by

from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.parallel.rank_pool import RankFailed, Ranks
from cerebro_lightning import LightningTask

pytestmark = pytest.mark.cluster

SHORT = ORDERS[:2]
RELATIVE = 1e-5
"""The tolerance relative to the largest element, after some ten steps in float32."""
RELATIVE_BF16 = 3e-2
EVERYWHERE = ("ddp", "zero-3", "fsdp alone", "fsdp", "zero-1", "single")
"""Six units, of which none has the parallelism of the one before."""
ACCUMULATING = ("ddp", "fsdp", "single")
"""DeepSpeed keeps its gradients to itself."""
STOP = {"class": "EarlyStopping", "args": {"monitor": "val_loss", "patience": 0, "min_delta": 10.0}}

UNEVEN = {"batch_size": 3}
"""Two rows on one rank and one on the other, and a last batch with a single row, which leaves a rank none."""
MATRIX: Mapping[str, tuple[Case, tuple[str, ...]]] = {
    "one cycle per step, clipping by norm": (
        Case(
            "OneCycle",
            trainer={"gradient_clip_val": 0.1},
            callbacks=["LearningRateMonitor"],
            hparams=UNEVEN,
            orders=SHORT,
        ),
        EVERYWHERE,
    ),
    "configure_model, blocks, ties, groups": (Case("Configured", hparams=UNEVEN, orders=SHORT), EVERYWHERE),
    "torchmetrics": (Case("Metrics", hparams=UNEVEN, orders=SHORT), EVERYWHERE),
    "logging everywhere, also on rank 0 alone": (
        Case(
            "Logging",
            trainer={"log_every_n_steps": 1},
            callbacks=["lightning_zoo:Stateful", "lightning_zoo:OnRankZero"],
            hparams=UNEVEN,
            orders=SHORT,
        ),
        EVERYWHERE,
    ),
    "mixed precision": (Case("StepLR", trainer={"precision": "bf16-mixed"}, orders=SHORT), EVERYWHERE),
    "accumulation over partitions": (
        Case("Net", trainer={"accumulate_grad_batches": 4}, hparams=UNEVEN, orders=SHORT),
        ACCUMULATING,
    ),
    "two optimizers by hand": (Case("Gan", hparams=UNEVEN, orders=SHORT), ("ddp", "single")),
    "weight averaging": (Case("Net", callbacks=["lightning_zoo:Average"], orders=SHORT), ("ddp", "single")),
}

OF_A_RANK = {
    "by_hand",  # past self.log: rank 0's own
    "mean",  # a MeanMetric that is updated by the batch: each rank's counts as one
    "lowest",  # the least over parts of batches
}


def close(actual: Any, expected: Any, relative: float, path: str = "") -> list[str]:
    """Where two trees differ by more."""
    if isinstance(expected, torch.Tensor):
        scale = float(expected.double().abs().max().clamp(min=1e-3)) if expected.numel() else 1.0
        far = float((actual.double() - expected.double()).abs().max()) / scale if expected.numel() else 0.0
        return [] if far <= relative else [f"{path}: {far:.1e}"]
    if isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            return [f"{path}: {actual.keys() ^ expected.keys()}"]
        every = [key for key in expected if key not in OF_A_RANK]
        return [d for key in every for d in close(actual[key], expected[key], relative, f"{path}.{key}")]
    if isinstance(expected, list | tuple):
        if len(actual) != len(expected):
            return [f"{path}: {len(actual)} and {len(expected)} items"]
        pairs = zip(actual, expected, strict=True)
        return [d for n, (a, b) in enumerate(pairs) for d in close(a, b, relative, f"{path}[{n}]")]
    if isinstance(expected, float):
        return [] if actual == pytest.approx(expected, rel=relative, abs=1e-4, nan_ok=True) else [path]
    return [] if actual == expected else [f"{path}: {actual} and {expected}"]


def without_generators(ends: Outcome) -> dict[str, Any]:
    """Those of other ranks are their own."""
    return {name: value for name, value in vars(ends).items() if name != "rng"}


@pytest.mark.parametrize("name", MATRIX)
def test_the_lightning_matrix(ranks: Ranks, tmp_path: Path, name: str) -> None:
    case, kinds = MATRIX[name]
    alone = without_generators(outcome(list(units(case))))
    actual = without_generators(outcome(units_by(ranks, case, kinds, tmp_path)))
    relative = RELATIVE_BF16 if "precision" in case.trainer else RELATIVE
    assert not close(actual, alone, relative)


@pytest.mark.parametrize("kind", ["fsdp", "zero-2"])
def test_a_unit_repeated_by_the_same_strategy_or_in_parts_is_the_same(
    ranks: Ranks, tmp_path: Path, kind: str
) -> None:
    case = Case("Dropout", orders=((1, 0, 2),))
    results = []
    for name, cuts in (("once", ()), ("again", ()), ("parts", (1,))):
        done = units_by(ranks, case, [kind], tmp_path / name, cuts)
        state = done[-1][1].state
        results.append((state["state_dict"], state["optimizer_states"], state["cerebro"]["rng"]))
    assert not differences(results[0], results[1])
    assert not differences(results[0], results[2])


REFUSED = [
    ("fsdp", Case("Gan"), "Gan has manual optimization, which fsdp cannot do: choose single or ddp"),
    ("zero-1", Case("Net", trainer={"accumulate_grad_batches": 2}), "accumulate_grad_batches under deep"),
    ("zero-3", Case("Net", trainer={"gradient_clip_algorithm": "value"}), "value under deepspeed"),
    ("ddp", Case("Net", trainer={"precision": "bf16-true"}), "choices there: 32-true, bf16-mixed"),
    ("fsdp", Case("Net", callbacks=["lightning_zoo:Average"]), "the callback Average under fsdp"),
    ("ddp", Case("Pearson"), r"Pearson\.pearson is a PearsonCorrCoef, whose states of several ranks"),
    ("ddp", Case("OwnBackward"), "OwnBackward overrides backward"),
    ("ddp", Case("Untrained"), "Untrained has no optimizer"),
    ("pipeline", Case("Net"), "pipeline makes whole steps alone"),
]


@pytest.mark.parametrize(
    ("kind", "case", "message"),
    [*REFUSED[:2], ("ddp", Case("Net"), "trained by ddp: ddp takes two ranks or more")],
)
def test_settings_that_several_ranks_cannot_honour_are_refused_before_the_first_batch(
    kind: str, case: Case, message: str
) -> None:
    strategy = CHOICES.get(kind, Strategy(kind, 2))
    with pytest.raises(TaskError, match=message):
        LightningTask(case.section, FOLDER).train(
            dataclasses.replace(job(case, 0, 0, None), strategy=strategy)
        )


FINETUNING = {"class": "BackboneFinetuning", "args": {"unfreeze_backbone_at_epoch": 1}}


@pytest.mark.parametrize(
    ("kind", "case", "message"),
    [*REFUSED, ("ddp", Case("Net", callbacks=[FINETUNING]), "the callback BackboneFinetuning under ddp")],
)
def test_it_is_foreseen_before_the_run(kind: str, case: Case, message: str) -> None:
    actual = LightningTask(case.section, FOLDER).refusal(case.hparams, CHOICES.get(kind, Strategy(kind, 2)))
    assert actual is not None
    assert re.search(message, actual)


@pytest.mark.parametrize("kind", CHOICES)
def test_nothing_is_foreseen_of_what_can_be(kind: str) -> None:
    for name in ("Net", "OneCycle", "Configured", "Metrics"):
        case = Case(name)
        assert LightningTask(case.section, FOLDER).refusal(case.hparams, CHOICES[kind]) is None


def test_unfreezing_parameters_during_training_is_refused(ranks: Ranks, tmp_path: Path) -> None:
    case = Case("Unfreezing", orders=SHORT)
    with pytest.raises(
        RankFailed, match="has frozen, unfrozen, added or reshaped parameters during the training"
    ):
        units_by(ranks, case, ["ddp"], tmp_path)


@pytest.mark.parametrize("kind", ["ddp", "zero-3"])
def test_a_value_that_is_not_finite_is_named(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    ((_, result),) = units_by(ranks, Case("Diverges", orders=((1,),)), [kind], tmp_path)
    assert result.not_finite is not None
    assert result.not_finite.startswith("the parameter net.0.weight has ")


def test_a_model_that_has_no_room_is_refused_before_it_is_trained() -> None:
    case = Case("OneCycle", hparams={"width": 1000})
    unit = dataclasses.replace(job(case, 0, 0, None), memory_limit_bytes=100_000)
    with pytest.raises(TaskError, match=r"a rank holds at least .* and has .* for them"):
        LightningTask(case.section, FOLDER).train(unit)


def test_a_profile_does_not_validate() -> None:
    case, seen = Case("Net"), list[None]()
    last = job(case, 0, 2, next(r for _, r in list(units(case))[1:]).state)
    tried = dataclasses.replace(
        last, unit=dataclasses.replace(last.unit, phase=Phase.PROFILE), beat=lambda: seen.append(None)
    )
    LightningTask(case.section, FOLDER).train(tried)
    assert len(seen) == 2, "batches of training"
