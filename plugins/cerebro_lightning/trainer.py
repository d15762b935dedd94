"""``CerebroTrainer``: many configs of a LightningModule, with the feel of one ``L.Trainer``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import TensorDataset

import cerebro_elastic
from cerebro_elastic import Recipe, RunResult, load_recipe
from cerebro_elastic.errors import DataError, TaskError
from cerebro_elastic.recipes import Objective
from cerebro_elastic.report.results import ConfigResult
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.live import LiveView
from cerebro_elastic.search.studies import is_study, section_of, tell
from cerebro_elastic.train.bench import make_task
from cerebro_lightning.section import check_trainer_settings
from cerebro_lightning.task import LightningTask

if TYPE_CHECKING:
    import optuna

Columns: TypeAlias = Mapping[str, Any]
Data: TypeAlias = str | Path | Columns | TensorDataset | Callable[[], Any]


class CerebroTrainer:
    """Trains configs of a LightningModule by model hopping, on nodes of this machine.

    ``max_epochs``, ``callbacks`` and further arguments are those of ``L.Trainer`` (what a sub-epoch
    cannot honour exactly is refused by name); ``monitor`` and ``mode`` say what is best, as in
    ``ModelCheckpoint``. ``search`` is a method's name, such as ``random`` or ``asha`` with ``num`` configs,
    the keys of a recipe's ``search`` (``{"method": "asha", "reduction_factor": 4}``), or an ``optuna.Study``,
    which gets the configs as trials. ``parallelism`` and ``gang`` (nodes that train a unit together) are the
    recipe's keys. Callbacks are classes or names, alone or as ``{"class": name, "args":
    {...}}``: every unit makes its own.

    >>> trainer = CerebroTrainer(max_epochs=3, nodes=2, monitor="val_acc", mode="max")
    >>> board = trainer.fit(Net, {"lr": [0.1, 0.01]}, {"x": x, "y": y}, val_data=0.2)
    >>> net = trainer.best_module()
    """

    def __init__(
        self,
        *,
        max_epochs: int = 1,
        nodes: int | str = 2,
        partitions: int = 4,
        batch_size: int = 32,
        search: str | Mapping[str, Any] | optuna.Study = "grid",
        num: int | None = None,
        constraints: Sequence[str] = (),
        monitor: str = "val_loss",
        mode: Literal["min", "max"] = "min",
        seed: int = 0,
        scheduler: str = "longest-remaining",
        parallelism: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] = "single",
        gang: int = 1,
        callbacks: Sequence[type[pl.Callback] | str | Mapping[str, Any]] = (),
        run_id: str = "lightning",
        home: str | Path | None = None,
        fresh: bool = False,
        enable_progress_bar: bool = True,
        **trainer: Any,
    ) -> None:
        check_trainer_settings(trainer)
        self._trainer = trainer
        self._callbacks = [_named(c) if isinstance(c, type) else c for c in callbacks]
        self._sections: dict[str, Any] = {
            "name": run_id,
            "seed": seed,
            "epochs": max_epochs,
            "nodes": nodes,
            "scheduler": scheduler,
            "parallelism": parallelism,
            "gang": gang,
            "objective": {"metric": monitor, "mode": mode},
        }
        self._data = {"partitions": partitions, "batch_size": batch_size}
        self._study: Any = search if is_study(search) else None
        more = {"constraints": list(constraints), "num": num}
        self._search = {
            **_section(search, monitor, mode),
            **{name: value for name, value in more.items() if value not in (None, [])},
        }
        self._home = Path(home) if home is not None else default_home()
        self._fresh = fresh
        self._shows = enable_progress_bar
        self._result: RunResult | None = None

    def fit(
        self,
        module: type[pl.LightningModule],
        search_space: Mapping[str, Any],
        train_data: Data,
        val_data: float | str | Path = 0.2,
        **args: Any,
    ) -> list[ConfigResult]:
        """Train a config for each point of ``search_space``; the leaderboard, the best first.

        ``module`` is the class, in a file that others can import; ``search_space`` maps arguments of its
        constructor to lists of values (or distributions: ``{"loguniform": [1e-4, 1e-1]}``), ``args``
        are further arguments, the same for all. ``train_data`` are columns by name (arrays or tensors of
        equal length), a ``TensorDataset``, a path or URL of a file or a prepared dataset, or a function
        that returns columns. ``val_data`` is the share of rows for validation, or a source of its own.

        An unfinished run of the same ``run_id`` and arguments goes on where it stood.
        """
        recipe = self.recipe(module, search_space, train_data, val_data, **args)
        with LiveView(recipe.objective) if self._shows else nullcontext() as view:
            watcher = view.watcher if view else None
            self._result = cerebro_elastic.run(recipe, home=self._home, fresh=self._fresh, watcher=watcher)
        if self._study is not None:
            tell(self._study, self._result.study())
        return self._result.leaderboard

    def recipe(
        self,
        module: type[pl.LightningModule],
        search_space: Mapping[str, Any],
        train_data: Data,
        val_data: float | str | Path = 0.2,
        **args: Any,
    ) -> Recipe:
        """The recipe that ``fit`` runs."""
        reference, root = _reference(module)
        task = {
            "kind": "lightning",
            "module": reference,
            "args": args,
            "trainer": self._trainer,
            "callbacks": self._callbacks,
        }
        return load_recipe(
            {
                **self._sections,
                "task": task,
                "data": {**self._data, **self._source(train_data, val_data, root)},
                "search": {**self._search, "space": dict(search_space)},
            },
            root=root,
        )

    @property
    def result(self) -> RunResult:
        """The run after ``fit``: visits, checkpoints, curves."""
        if self._result is None:
            raise TaskError("this CerebroTrainer has no result yet: call fit first")
        return self._result

    def best_module(self) -> pl.LightningModule:
        """The best config's module as it was at the end of its best epoch."""
        best = self.result.best
        task = make_task(self.result.recipe)
        assert isinstance(task, LightningTask)
        state = self.result.state(best.config)
        return task.load_module(best.hparams, state, self.result.recipe.seed)

    def _source(self, data: Data, valid: float | str | Path, root: Path) -> dict[str, Any]:
        if isinstance(data, str | Path) and (Path(data) / "manifest.json").is_file():
            self._data.pop("partitions", None)
            return {"url": str(Path(data).resolve())}
        source = {"valid": str(valid) if isinstance(valid, Path) else valid}
        if isinstance(data, str | Path):
            return {"source": str(data), **source}
        if callable(data):
            reference, where = _reference(data)
            if where != root:
                raise DataError(f"{reference} is in {where}, the module in {root}: put both in one folder")
            return {"source": reference, **source}
        return {"source": str(self._written(_columns(data))), **source}

    def _written(self, columns: Mapping[str, np.ndarray[Any, Any]]) -> Path:
        """The columns as a file, named by their content: the same data, the same run."""
        digest = hashlib.sha256()
        for name, column in columns.items():
            digest.update(f"{name} {column.dtype} {column.shape} ".encode())
            digest.update(np.ascontiguousarray(column).data)
        path = (self._home / "data" / f"{digest.hexdigest()[:16]}.npz").resolve()
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp.npz")
            np.savez(temporary, **columns)  # type: ignore[arg-type]
            temporary.replace(path)
        return path


def _section(search: str | Mapping[str, Any] | optuna.Study, monitor: str, mode: str) -> dict[str, Any]:
    """The keys of a recipe's ``search``."""
    if isinstance(search, str):
        return {"method": search}
    if isinstance(search, Mapping):
        return dict(search)
    return section_of(search, Objective.model_validate({"metric": monitor, "mode": mode}))


def _columns(data: Any) -> dict[str, np.ndarray[Any, Any]]:
    if isinstance(data, TensorDataset):
        data = {f"x{i}": tensor for i, tensor in enumerate(data.tensors)}
    if not isinstance(data, Mapping):
        raise DataError(
            f"train_data is a {type(data).__name__}: give columns by name ({{'x': x, 'y': y}}), a "
            "TensorDataset, a path or URL, or a function that returns columns"
        )
    return {
        name: column.numpy(force=True) if isinstance(column, torch.Tensor) else np.asarray(column)
        for name, column in data.items()
    }


def _named(callback: type[pl.Callback]) -> str:
    return callback.__name__ if callback.__module__.startswith("lightning.") else _reference(callback)[0]


def _reference(thing: Any) -> tuple[str, Path]:
    """``module:name`` of a class or function, and the folder that others can import it from."""
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    if file is None or "<locals>" in thing.__qualname__:
        raise TaskError(
            f"{thing.__qualname__} cannot be imported by the nodes, which are processes of their own: "
            "define it at the top level of a .py file and import it from there"
        )
    depth = 0 if thing.__module__ == "__main__" else thing.__module__.count(".")
    name = Path(file).stem if thing.__module__ == "__main__" else thing.__module__
    return f"{name}:{thing.__qualname__}", Path(file).resolve().parents[depth]
