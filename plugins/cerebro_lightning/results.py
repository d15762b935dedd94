"""The sums of ``self.log`` over an epoch so far. They hop: an epoch's metrics cover all its units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import lightning.pytorch as pl
import torch

from cerebro_elastic.extending.state import Tree
from cerebro_lightning._lightning_internals import (
    METADATA_SYNC,
    RESULT_STATE,
    ResultCollection,
    ResultMetadata,
    ResultMetric,
    ResultSync,
    dtype_after_reset,
    set_dtype_after_reset,
)

_METADATA = [field.name for field in fields(ResultMetadata) if field.name not in ("reduce_fx", METADATA_SYNC)]
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{f"torch.{name}": getattr(torch, name) for name in ("mean", "sum", "max", "min")},
    **{function.__name__: function for function in (sum, max, min)},
}


def results_tree(results: ResultCollection) -> Tree:
    """The results by key, as plain values."""
    return {
        key: {
            **{name: getattr(result, name) for name in RESULT_STATE if _is_kept(result, name)},
            "is_tensor": result.is_tensor,
            "metadata": {name: getattr(result.meta, name) for name in _METADATA},
            "reduction": next(n for n, function in _REDUCTIONS.items() if function is result.meta.reduce_fx),
            "rank_zero_only": result.meta.sync.rank_zero_only,
            "dtype": dtype_after_reset(result),
        }
        for key, result in results.items()
    }


def put_results(
    results: ResultCollection, tree: Mapping[str, Tree], module: pl.LightningModule, trainer: pl.Trainer
) -> None:
    """Put the values that ``results_tree`` has returned into ``results``."""
    for key, saved in tree.items():
        results[key] = _result(saved, module, trainer)


def _is_kept(result: ResultMetric, name: str) -> bool:
    """Whether the value hops. A logged torchmetrics object is part of the module, where it is found by its
    name."""
    return hasattr(result, name) and (result.is_tensor or name != "value")


def _result(tree: Tree, module: pl.LightningModule, trainer: pl.Trainer) -> ResultMetric:
    metadata = ResultMetadata(**tree["metadata"], reduce_fx=_REDUCTIONS[tree["reduction"]])
    metadata.sync = ResultSync(fn=trainer.strategy.reduce, rank_zero_only=tree["rank_zero_only"])
    result = ResultMetric(metadata, tree["is_tensor"])
    if (dtype := tree.get("dtype")) is not None:
        set_dtype_after_reset(result, dtype)
    for name in RESULT_STATE:
        if name in tree:
            setattr(result, name, tree[name])
    if not result.is_tensor and metadata.metric_attribute is not None:
        result.value = module.get_submodule(metadata.metric_attribute)
    return result
