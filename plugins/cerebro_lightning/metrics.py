"""torchmetrics on several ranks: each rank's state covers its own rows, the state that hops covers all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import lightning.pytorch as pl
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat, dim_zero_max, dim_zero_min, dim_zero_sum

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import ranks
from cerebro_elastic.extending.state import cloned
from cerebro_lightning._lightning_internals import (
    METRIC_COUNT,
    keep_synced,
    list_states_of,
    reductions_of,
    reset_but_count,
    state_names_of,
)

_WITHOUT_ORDER = (dim_zero_sum, dim_zero_max, dim_zero_min, dim_zero_cat)
"""Reductions that may be done in steps: over some units, then over some ranks."""

MetricStates: TypeAlias = list[tuple[Metric, dict[str, Any]]]


def refuse_metrics(module: pl.LightningModule) -> None:
    """Raise ``TaskError`` for a metric whose ranks' states cannot be put together."""
    for name, metric in _metrics(module):
        if any(reduction not in _WITHOUT_ORDER for reduction in reductions_of(metric)):
            raise TaskError(
                f"{type(module).__name__}.{name} is a {type(metric).__name__}, whose states of several ranks "
                "do not add up: train with `parallelism: single`, or take another metric"
            )


@contextmanager
def of_all_ranks(module: pl.LightningModule) -> Iterator[None]:
    """Inside the block, every rank's metrics have the states of all ranks. Every rank enters it."""
    if ranks()[1] == 1:
        yield
        return
    own = states_of(module)
    for _, metric in _metrics(module):
        metric.sync()
        keep_synced(metric)
        for state in list_states_of(metric):
            rows = getattr(metric, state)
            setattr(metric, state, [rows] if len(rows) else [])
    yield
    restore_states(own)


def keep_to_first(module: pl.LightningModule) -> None:
    """Keep a state of all ranks on rank 0: the other ranks start from an empty one."""
    for _, metric in _metrics(module) if ranks()[0] else ():
        reset_but_count(metric)


def states_of(module: pl.LightningModule) -> MetricStates:
    """The metrics' states, for ``restore_states``."""
    return [
        (metric, {name: cloned(vars(metric)[name]) for name in (*state_names_of(metric), *METRIC_COUNT)})
        for _, metric in _metrics(module)
    ]


def restore_states(states: MetricStates) -> None:
    """Put the metrics back to the states that ``states_of`` has returned."""
    for metric, state in states:
        vars(metric).update(state)


def _metrics(module: pl.LightningModule) -> list[tuple[str, Metric]]:
    return [(name, part) for name, part in module.named_modules() if isinstance(part, Metric)]
