"""Torch Datasets and DataLoaders that a script has made, for ``CerebroTrainer.fit``: the nodes read their
rows from a pickle of the Dataset, and a loader's settings become keys of the recipe's ``data``."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    TensorDataset,
    default_collate,
)

from cerebro_elastic.extending.data import is_stream, settings_of
from cerebro_elastic.extending.errors import CerebroError, DataError
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.running import References, import_folder

TorchData: TypeAlias = Dataset[Any] | DataLoader[Any]

_PROTOCOL = 4
"""Of pickles. By the next one arrays come back read-only."""


def loader_keys(data: Any, what: str) -> dict[str, Any]:
    """The keys of a recipe's ``data`` that a training DataLoader settles; none of a Dataset. Raises
    ``DataError`` for an ``IterableDataset``, and for a loader whose order cannot be reproduced."""
    if is_stream(data):
        raise DataError(
            f"{what} is {type(data).__name__}, an IterableDataset, which has no rows by number: give a "
            "map-style Dataset, or a function that returns it, so that its rows are written once"
        )
    if not isinstance(data, DataLoader):
        return {}
    keys = settings_of(data, f"{what}, a DataLoader,")
    if data.batch_sampler is None:
        raise DataError(f"{what}, a DataLoader, has batch_size=None: give it by a LightningDataModule")
    if data.collate_fn is default_collate:
        return keys
    if not isinstance(data.collate_fn, FunctionType):
        raise DataError(
            f"the collate_fn of {what} is a {type(data.collate_fn).__name__}, and nodes import a function by "
            "its name: define one in a file or cell (`def collate(rows): ...`), or give a LightningDataModule"
        )
    return {**keys, "collate": data.collate_fn}


def valid_keys(data: Any, collate: Callable[..., Any] | None) -> dict[str, Any]:
    """The same of validation data. Raises ``DataError`` for a loader that a run cannot validate by."""
    keys = loader_keys(data, "val_data")
    if not keys:
        return {}
    if keys.get("collate") is not collate:
        raise DataError(
            "val_data has another collate_fn than train_data: give both the same, or a LightningDataModule, "
            "whose validation loaders are used as they are"
        )
    for key in ("shuffle", "drop_last"):
        if keys[key]:
            raise DataError(f"val_data has {key}=True: validation takes every row, in order; leave it out")
    return {"valid_batch_size": keys["batch_size"]}


def dataset_of(data: TorchData) -> Dataset[Any]:
    """The Dataset itself, or that of a DataLoader."""
    return data.dataset if isinstance(data, DataLoader) else data


def tensors_of(dataset: Dataset[Any]) -> tuple[torch.Tensor, ...] | None:
    """The columns of a ``TensorDataset``, or of a ``Subset`` (``random_split``) or ``ConcatDataset`` of such;
    ``None`` for a Dataset that makes its rows otherwise."""
    if type(dataset) is TensorDataset:
        return dataset.tensors
    if type(dataset) is Subset:
        tensors, rows = tensors_of(dataset.dataset), torch.as_tensor(dataset.indices, dtype=torch.int64)
        return None if tensors is None else tuple(tensor[rows] for tensor in tensors)
    if type(dataset) is ConcatDataset:
        parts = [tensors_of(part) for part in dataset.datasets]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts) and len({len(part) for part in known}) == 1:
            return tuple(torch.cat(columns) for columns in zip(*known, strict=True))
    return None


def keep(
    datasets: Mapping[str, Dataset[Any]], folder: Path, references: References, root: Path
) -> dict[str, Any]:
    """Keep Datasets by split in a file of ``folder``, named by its content; the keys of a recipe's ``data``
    by which nodes read them. Raises ``DataError`` if they cannot be pickled."""
    content = io.BytesIO()
    try:
        _Pickler(content, references, root).dump(dict(datasets))
    except CerebroError as error:
        raise DataError(f"the {_names(datasets)} cannot be handed to the nodes: {error}") from error
    except Exception as error:  # of a class of anybody's
        raise DataError(
            f"the {_names(datasets)} cannot be handed to the nodes, since it cannot be pickled: {error}; "
            "open such things in __getitem__, or give a LightningDataModule, which each node makes again"
        ) from error
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    path = (folder / f"{digest[:16]}.pickle").resolve()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(content.getvalue())
        temporary.replace(path)
    return {"dataset": f"{__name__}:kept", "args": {"kept_file": str(path), "kept_sha256": digest}}


def kept(kept_file: str, kept_sha256: str) -> Mapping[str, Dataset[Any]]:
    """The Datasets in a file that ``keep`` has written. Raises ``DataError`` if it is missing, or another."""
    try:
        content = Path(kept_file).read_bytes()
    except OSError as error:
        raise DataError(f"{kept_file}, the Dataset that `fit` has kept, cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != kept_sha256:
        raise DataError(f"{kept_file} is not as `fit` has written it: call `fit` again")
    datasets: Mapping[str, Dataset[Any]] = pickle.loads(content)
    return datasets


def _names(datasets: Mapping[str, Dataset[Any]]) -> str:
    return " or ".join(sorted({type(dataset).__name__ for dataset in datasets.values()}))


class _Pickler(pickle.Pickler):
    """Equal Datasets have equal pickles, so that a second call of ``fit`` continues its run: a tensor is
    pickled as its array. Classes and functions of the user's files are named as the nodes import them."""

    def __init__(self, file: io.BytesIO, references: References, root: Path) -> None:
        super().__init__(file, protocol=_PROTOCOL)
        self._references, self._root = references, root

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.device.type == "cpu" and not value.requires_grad:
            try:
                return torch.from_numpy, (value.numpy(),)
            except TypeError:  # numpy has no such type
                return NotImplemented
        if isinstance(value, type | FunctionType) and _is_own(value.__module__):
            return import_object, (self._references.of(value), self._root)
        return NotImplemented


def _is_own(module: str) -> bool:
    return module == "__main__" or import_folder(module) is not None
