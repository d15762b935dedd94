"""What ``self.log`` has added up of an epoch so far. It hops: an epoch's metrics are of all its units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
)

from cerebro_elastic.extending.state import Tree

_RESULT = ("value", "cumulated_batch_size", "_forward_cache", "_computed", "_update_count", "has_reset")
_METADATA = [field.name for field in fields(_Metadata) if field.name not in ("reduce_fx", "_sync")]
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{f"torch.{name}": getattr(torch, name) for name in ("mean", "sum", "max", "min")},
    **{function.__name__: function for function in (sum, max, min)},
}


def results_tree(results: _ResultCollection) -> Tree:
    """The results by key, in plain values."""
    return {
        key: {
            **{name: getattr(result, name) for name in _RESULT if _is_kept(result, name)},
            "is_tensor": result.is_tensor,
            "metadata": {name: getattr(result.meta, name) for name in _METADATA},
            "reduction": next(n for n, function in _REDUCTIONS.items() if function is result.meta.reduce_fx),
            "rank_zero_only": result.meta.sync.rank_zero_only,
        }
        for key, result in results.items()
    }


def put_results(
    results: _ResultCollection, tree: Mapping[str, Tree], module: pl.LightningModule, trainer: pl.Trainer
) -> None:
    """Give ``results`` what ``results_tree`` took."""
    for key, saved in tree.items():
        results[key] = _result(saved, module, trainer)


def _is_kept(result: _ResultMetric, name: str) -> bool:
    """A logged torchmetrics object is part of the module; it is found again by its name."""
    return hasattr(result, name) and (result.is_tensor or name != "value")


def _result(tree: Tree, module: pl.LightningModule, trainer: pl.Trainer) -> _ResultMetric:
    metadata = _Metadata(**tree["metadata"], reduce_fx=_REDUCTIONS[tree["reduction"]])
    metadata.sync = _Sync(fn=trainer.strategy.reduce, rank_zero_only=tree["rank_zero_only"])
    result = _ResultMetric(metadata, tree["is_tensor"])
    for name in _RESULT:
        if name in tree:
            setattr(result, name, tree[name])
    if not result.is_tensor and metadata.metric_attribute is not None:
        result.value = module.get_submodule(metadata.metric_attribute)
    return result
