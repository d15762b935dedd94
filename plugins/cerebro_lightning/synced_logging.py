"""Turns the values that ``self.log`` gets on several ranks into those of the whole batch, as on one rank.

Lightning keeps each rank's values apart, or reduces them at once if ``sync_dist`` is set. Here all values are
reduced, a little later. At points that every rank reaches (where rows are logged, at the ends of epochs and
units) the ranks exchange the values that they have logged since the last such point, and each treats whole
batches' values as Lightning would have done. So no rank waits in vain for a value that only some ranks log,
and an epoch's sums are the same on all ranks, so that they can hop.

Means weigh by rows, sums add up, extremes are those over all ranks. Without rows (hooks of an epoch's end)
all ranks weigh alike. The value of a step of a torchmetrics object is the mean of the ranks' values; that of
an epoch is computed from all ranks' states, by torchmetrics: each rank's state covers its own rows, the state
that hops covers all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat, dim_zero_max, dim_zero_min, dim_zero_sum

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import Portion, ranks
from cerebro_elastic.extending.state import cloned
from cerebro_lightning._lightning_internals import (
    METRIC_COUNT,
    RESULT_MEANS,
    LoggerConnector,
    ResultCollection,
    ResultMetadata,
    active_results_of,
    batches_that_stepped,
    forget_epoch_value,
    keep_synced,
    list_states_of,
    logged_step_value,
    reductions_of,
    reset_but_count,
    set_logged_step_value,
    state_names_of,
)

_WITHOUT_ORDER = (dim_zero_sum, dim_zero_max, dim_zero_min, dim_zero_cat)
"""Reductions that may be done in steps: over some units, then over some ranks."""

_MetricStates: TypeAlias = list[tuple[Metric, dict[str, Any]]]


def refuse_metrics(module: pl.LightningModule) -> None:
    """Raise ``TaskError`` for a metric whose ranks' states cannot be put together."""
    for name, metric in _metrics(module):
        if any(reduction not in _WITHOUT_ORDER for reduction in reductions_of(metric)):
            raise TaskError(
                f"{type(module).__name__}.{name} is a {type(metric).__name__}, whose states of several ranks "
                "do not add up: train with `parallelism: single`, or take another metric"
            )


@contextmanager
def metrics_of_all_ranks(module: pl.LightningModule) -> Iterator[None]:
    """Inside the block, every rank's metrics have the states of all ranks. Every rank enters it."""
    if ranks()[1] == 1:
        yield
        return
    own = _states_of(module)
    for _, metric in _metrics(module):
        metric.sync()
        keep_synced(metric)
        for state in list_states_of(metric):
            rows = getattr(metric, state)
            setattr(metric, state, [rows] if len(rows) else [])
    yield
    _restore_states(own)


def keep_metrics_to_first(module: pl.LightningModule) -> None:
    """Keep a state of all ranks on rank 0: the other ranks start from an empty one."""
    for _, metric in _metrics(module) if ranks()[0] else ():
        reset_but_count(metric)


def _states_of(module: pl.LightningModule) -> _MetricStates:
    """The metrics' states, for ``_restore_states``."""
    return [
        (metric, {name: cloned(vars(metric)[name]) for name in (*state_names_of(metric), *METRIC_COUNT)})
        for _, metric in _metrics(module)
    ]


def _restore_states(states: _MetricStates) -> None:
    """Put the metrics back to the states that ``_states_of`` has returned."""
    for metric, state in states:
        vars(metric).update(state)


def _metrics(module: pl.LightningModule) -> list[tuple[str, Metric]]:
    return [(name, part) for name, part in module.named_modules() if isinstance(part, Metric)]


_ALIKE = Portion(0, 1, 1.0)
"""The portion outside of batches: all ranks weigh alike."""


@dataclass(frozen=True)
class _LoggedValue:
    """One value that one rank has logged, and the weight of its part of the batch. ``value`` is set if it is
    a number; ``by_rows`` says that ``weight``, for the epoch's mean, counts the part's rows."""

    value: float | None
    weight: int
    by_rows: bool
    share: float


class SyncedResults(ResultCollection):
    """``portion`` returns this rank's part of the present batch."""

    def __init__(self, training: bool, portion: Callable[[], Portion]) -> None:
        super().__init__(training)
        self._portion = portion
        self._logged: dict[str, list[tuple[Any, int, Portion]]] = {}
        self._before: dict[str, dict[str, Any]] = {}
        self._own_weights: set[str] = set()  # by the `batch_size` that the module has given, not by rows

    def update_metrics(self, key: str, value: Any, batch_size: int) -> None:
        result = self[key]
        if key not in self._logged:
            self._logged[key] = []
            self._before[key] = {name: vars(result)[name] for name in RESULT_MEANS if name in vars(result)}
        super().update_metrics(key, value, batch_size)
        step_value = value if result.is_tensor else logged_step_value(result)
        self._logged[key].append(
            (step_value, batch_size, self._portion() if self.batch is not None else _ALIKE)
        )

    def reset(self, metrics: bool | None = None, fx: str | None = None) -> None:
        super().reset(metrics, fx)
        for key in [key for key in self._logged if self[key].has_reset]:
            del self._logged[key], self._before[key]

    def agree(self) -> None:
        """Every rank calls it: values logged since the last call become those of whole batches."""
        mine = {key: [_logged_value(*entry) for entry in entries] for key, entries in self._logged.items()}
        everyone: list[Any] = [mine] * ranks()[1]
        if len(everyone) > 1:
            dist.all_gather_object(everyone, mine)
        logged, self._logged = self._logged, {}
        for key, entries in logged.items():
            per_rank = [theirs[key] for theirs in everyone if key in theirs]
            self._replay(key, self._before[key], entries, per_rank)
        self._before = {}

    def _replay(
        self,
        key: str,
        before: dict[str, Any],
        entries: list[tuple[Any, int, Portion]],
        per_rank: list[list[_LoggedValue]],
    ) -> None:
        result = self[key]
        if result.is_tensor:
            vars(result).update(before)
        for number, (value, _, _) in enumerate(entries):
            counted = [theirs[number] for theirs in per_rank if number < len(theirs)]
            counted = [one for one in counted if one.share and one.value is not None]
            if not counted:
                continue
            whole = _whole(_reduced(result.meta, counted), value)
            if result.is_tensor:
                result.forward(whole, self._weight(key, counted))
            else:
                set_logged_step_value(result, whole)
        if result.is_tensor:
            forget_epoch_value(result)

    def _weight(self, key: str, counted: Sequence[_LoggedValue]) -> int:
        """The weight of a batch in the epoch's mean: its rows, or the `batch_size` that the module has
        given."""
        if not all(one.by_rows for one in counted):
            self._own_weights.add(key)
        if key not in self._own_weights:
            return sum(one.weight for one in counted)
        return round(sum(one.weight * one.share for one in counted) / sum(one.share for one in counted))


def _logged_value(value: Any, weight: int, portion: Portion) -> _LoggedValue:
    number = float(value) if isinstance(value, Tensor) and value.numel() == 1 else None
    return _LoggedValue(number, int(weight), weight == portion.stop - portion.start, portion.share)


def _reduced(meta: ResultMetadata, counted: Sequence[_LoggedValue]) -> float:
    values = [one.value for one in counted if one.value is not None]
    if meta.is_sum_reduction:
        return sum(values)
    if meta.is_max_reduction:
        return max(values)
    if meta.is_min_reduction:
        return min(values)
    total = sum(one.share for one in counted)
    return sum(value * one.share for value, one in zip(values, counted, strict=True)) / total


def _whole(value: float, like: Tensor) -> Tensor:
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    return torch.tensor(value, dtype=dtype, device=like.device)


class SyncedConnector(LoggerConnector):
    """Lightning's own, that lets the ranks agree before anything is read. ``ends`` says whether the batch is
    the unit's last, ``stopping`` whether the training was already to stop when the unit began."""

    def __init__(self, trainer: pl.Trainer, portion: Callable[[], Portion], ends: Callable[[], bool]) -> None:
        super().__init__(trainer)
        self._portion = portion
        self._ends = ends
        self._before_batch: _MetricStates | None = None
        self.stopping = False

    def on_batch_start(self, batch: Any, dataloader_idx: int | None = None) -> None:
        super().on_batch_start(batch, dataloader_idx)
        # A rank without rows takes part with a row that does not count.
        self._before_batch = None if self._portion().share else _states_of(self.trainer.lightning_module)

    def on_batch_end(self) -> None:
        if self._before_batch is not None:
            _restore_states(self._before_batch)
        if not self.trainer.training or self._ends() or self.should_update_logs:
            self.agree()
        super().on_batch_end()

    def on_epoch_end(self) -> None:
        self.agree()
        super().on_epoch_end()

    def agree(self) -> None:
        """Every rank calls it."""
        results = active_results_of(self.trainer)
        assert isinstance(results, SyncedResults)
        results.agree()

    @property
    def should_update_logs(self) -> bool:
        """Lightning's rule, except for ``trainer.should_stop``, which may just have been set on one rank."""
        trainer = self.trainer
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if not trainer.training or not every:
            return super().should_update_logs
        return self.stopping or (batches_that_stepped(trainer) + 1) % every == 0
