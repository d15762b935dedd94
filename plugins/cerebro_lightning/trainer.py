"""``CerebroTrainer``: many configs of a LightningModule, with the feel of one ``L.Trainer``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import lightning.pytorch as pl
from torch.utils.data import DataLoader, Dataset

import cerebro_elastic
from cerebro_elastic import Recipe, Run, RunResult, load_recipe
from cerebro_elastic.extending.errors import DataError, RecipeError, RunFailed, TaskError
from cerebro_elastic.extending.recipes import Objective, named_columns
from cerebro_elastic.extending.running import (
    Interrupted,
    OnInterrupt,
    References,
    TerminalView,
    Watcher,
    home_of,
    in_notebook,
    make_task,
    root_of,
    studies,
)
from cerebro_elastic.extending.state import values_equal
from cerebro_lightning.columns import FORMS, Table, columns_of, write_columns
from cerebro_lightning.task import LightningTask
from cerebro_lightning.torch_data import (
    TorchData,
    dataset_of,
    keep,
    loader_keys,
    tensors_of,
    valid_keys,
)
from cerebro_lightning.trainer_arguments import checked_trainer_settings

if TYPE_CHECKING:
    import optuna

Module: TypeAlias = type[pl.LightningModule] | Callable[..., pl.LightningModule]
"""A class, or a function or class method that makes modules."""
Data: TypeAlias = str | Path | Mapping[str, Any] | tuple[Any, ...] | Table | TorchData | Callable[[], Any]


_OF_RUN = Recipe.model_fields.keys() - {"name", "epochs", "task", "objective"}
"""The keys of a recipe that are arguments under their own names."""
_OTHER_NAMES = {"epochs": "max_epochs", "objective": "monitor and mode", "name": "run_id"}
"""By key of a recipe, the arguments that set it."""


class CerebroTrainer:
    """Trains configs of a LightningModule by model hopping, on nodes of this machine.

    ``max_epochs``, ``callbacks`` and further arguments are those of ``L.Trainer`` (one that a sub-epoch
    cannot honour exactly is refused by name); ``monitor`` and ``mode`` define the best epoch, as in
    ``ModelCheckpoint``. ``data`` has the keys of a recipe's section (``{"batch_size": 64, "workers": 4}``).
    ``search`` is a method's name, such as ``random`` or ``asha`` with ``num`` configs, the keys of a recipe's
    section (``{"method": "asha", "reduction_factor": 4}``), or an ``optuna.Study``, which gets the configs as
    trials. Other keys of a recipe are arguments, too, with their sections as mappings: ``seed``, ``limits``,
    ``loggers``, ``checkpoints``, ``parallelism``, ``gang`` (nodes that train a unit together). Callbacks
    are classes or names, alone or as ``{"class": name, "args": {...}}``: every unit makes its own.

    >>> trainer = CerebroTrainer(max_epochs=3, nodes=2, monitor="val_acc", mode="max")
    >>> result = trainer.fit(Net, {"lr": [0.1, 0.01]}, {"x": x, "y": y}, val_data=0.2)
    >>> net = trainer.best_module()
    """

    def __init__(
        self,
        *,
        max_epochs: int = 1,
        nodes: int | str = 2,
        data: Mapping[str, Any] = MappingProxyType({}),
        search: str | Mapping[str, Any] | optuna.Study = "grid",
        num: int | None = None,
        monitor: str = "val_loss",
        mode: Literal["min", "max"] = "min",
        callbacks: Sequence[type[pl.Callback] | str | Mapping[str, Any]] = (),
        run_id: str = "lightning",
        home: str | Path | None = None,
        fresh: bool = False,
        changed_code: bool = False,
        enable_progress_bar: bool = True,
        **more: Any,
    ) -> None:
        of_run = {key: value for key, value in more.items() if key in _OF_RUN}
        self._trainer = {key: value for key, value in more.items() if key not in _OF_RUN}
        _check_places(self._trainer)
        checked_trainer_settings(self._trainer)
        self._sections: dict[str, Any] = {
            "name": run_id,
            "epochs": max_epochs,
            "nodes": nodes,
            "objective": {"metric": monitor, "mode": mode},
            **of_run,
        }
        self._data = data
        # The run makes trials of the study.
        self._study: dict[str, Any] = {"search": search} if studies.is_study(search) else {}
        self._search = _section(search, monitor, mode) | ({} if num is None else {"num": num})
        self._home = home_of(home)
        self._callbacks = [_checked_callback(callback) for callback in callbacks]
        self._of_start = {"fresh": fresh, "changed_code": changed_code}
        self._shows = enable_progress_bar
        self._result: RunResult | None = None
        self._run: Run | None = None

    @overload
    def fit(
        self,
        module: Module,
        search_space: Mapping[str, Any],
        train_data: Data | None = None,
        val_data: float | Data | None = None,
        *,
        datamodule: type[Any] | pl.LightningDataModule | None = None,
        wait: Literal[True] = True,
        on_interrupt: OnInterrupt = "stop",
        **args: Any,
    ) -> RunResult: ...

    @overload
    def fit(
        self,
        module: Module,
        search_space: Mapping[str, Any],
        train_data: Data | None = None,
        val_data: float | Data | None = None,
        *,
        datamodule: type[Any] | pl.LightningDataModule | None = None,
        wait: Literal[False],
        on_interrupt: OnInterrupt = "stop",
        **args: Any,
    ) -> Run: ...

    def fit(
        self,
        module: Module,
        search_space: Mapping[str, Any],
        train_data: Data | None = None,
        val_data: float | Data | None = None,
        *,
        datamodule: type[Any] | pl.LightningDataModule | None = None,
        wait: bool = True,
        on_interrupt: OnInterrupt = "stop",
        **args: Any,
    ) -> RunResult | Run:
        """Train a config for each point of ``search_space``; the run's result, with its ``leaderboard``.

        ``module`` is the class, or a function or class method that makes the module, in a file that others
        can import or in a cell of a notebook;
        ``search_space`` maps arguments of its constructor to lists of values (or distributions:
        ``{"loguniform": [1e-4, 1e-1]}``), ``args`` are further arguments, the same for all.
        ``train_data`` are columns by name (arrays or tensors of equal length), a tuple of arrays (``x, y``;
        of more than two ``x0, x1, ...``), a map-style torch ``Dataset``, a ``DataLoader``, whose batch size,
        ``shuffle``, ``drop_last``, ``collate_fn`` and workers hold, a DataFrame or another table, a path or
        URL of a file or a prepared dataset, or a function that returns columns. ``val_data`` is the share of
        rows for validation, by default ``valid`` of ``data`` (0.2), or separate data in one of these forms.
        Instead of both, ``datamodule`` is a ``LightningDataModule``, or its class; without any data the
        module's own ``train_dataloader`` is taken.

        With ``wait=False`` the run continues in the background, and the ``Run`` is returned at once.
        ``on_interrupt`` is the effect of Ctrl-C, or a notebook's button, on a run in the foreground: ``stop``
        it, or ``detach`` from it. A detached run continues in the background, as ``run``.

        An unfinished run of the same ``run_id`` and arguments is continued; if its code has changed since,
        only with ``changed_code``. If all configs failed,
        ``RunFailed`` begins with your line that raised, and ``result`` is there all the same.
        """
        recipe = self.recipe(module, search_space, train_data, val_data, datamodule=datamodule, **args)
        self._result = self._run = None
        call = {"home": self._home, **self._of_start, **self._study}
        watcher = None if self._shows else Watcher()
        if not wait:
            self._run = cerebro_elastic.run(recipe, watcher=watcher, wait=False, **call)
            return self._run
        shows_lines = self._shows and not in_notebook()
        try:
            with TerminalView(recipe.objective) if shows_lines else nullcontext() as view:
                watcher = view.watcher if view else watcher
                self._result = cerebro_elastic.run(recipe, watcher=watcher, on_interrupt=on_interrupt, **call)
        except Interrupted as interrupted:
            self._run = interrupted.run
            raise
        except RunFailed as failed:
            self._result = failed.result
            raise
        return self._result

    def recipe(
        self,
        module: Module,
        search_space: Mapping[str, Any],
        train_data: Data | None = None,
        val_data: float | Data | None = None,
        *,
        datamodule: type[Any] | Module | pl.LightningDataModule | None = None,
        **args: Any,
    ) -> Recipe:
        """The recipe that ``fit`` runs."""
        root = root_of(_checked(module))
        if not isinstance(search_space, Mapping):
            raise RecipeError(
                f"search_space is a {type(search_space).__name__}: map arguments of {module.__name__} to "
                "lists of values, such as {'lr': [0.1, 0.01]}"
            )
        if datamodule is None and train_data is None and _has_loader(module):
            datamodule = module
        if (datamodule is None) == (train_data is None):
            raise DataError(
                "fit takes train_data or a datamodule, one of them, unless the module has a "
                f"train_dataloader; as train_data {FORMS}"
            )
        references = References(root)
        if train_data is None:
            data = self._of_module(datamodule)
        elif isinstance(train_data, Dataset | DataLoader):
            data = self._of_torch(train_data, val_data, references, root)
        else:
            data = self._source(train_data, val_data)
        task = {
            "kind": "lightning",
            "module": module,
            "args": args,
            "trainer": self._trainer,
            "callbacks": self._callbacks,
        }
        sections = {
            **self._sections,
            "task": task,
            "data": data,
            "search": {**self._search, "space": dict(search_space)},
        }
        return load_recipe(references.in_recipe(sections), root=root)

    @property
    def run(self) -> Run:
        """The run in the background, by ``wait=False`` or ``on_interrupt="detach"``."""
        if self._run is None:
            raise TaskError("this CerebroTrainer has no run in the background: call fit with wait=False")
        return self._run

    @property
    def result(self) -> RunResult:
        """The run after ``fit``: visits, checkpoints, curves. Waits for a run in the background."""
        if self._result is None and self._run is not None:
            try:
                self._result = self._run.wait()
            except RunFailed as failed:
                self._result = failed.result
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

    def _source(self, data: Data, valid: float | Data | None) -> dict[str, Any]:
        if isinstance(data, str | Path) and (Path(data) / "manifest.json").is_file():
            return {**self._data, "url": str(Path(data).resolve())}
        section = {**self._data, "source": self._named(data, "train_data")}
        if valid is not None:
            section["valid"] = valid if isinstance(valid, int | float) else self._named(valid, "val_data")
        return section

    def _of_module(self, datamodule: Any) -> dict[str, Any]:
        kind = datamodule if isinstance(datamodule, type) else type(datamodule)
        arguments = {} if isinstance(datamodule, type) else _arguments_of(datamodule)
        return {"datamodule": kind, "args": arguments, **self._data}

    def _of_torch(
        self, train: TorchData, valid: float | Data | None, references: References, root: Path
    ) -> dict[str, Any]:
        """The section of a Dataset or a DataLoader. Tensors are written as columns; another Dataset is kept
        as it is."""
        keys = loader_keys(train, "train_data")
        share = {} if valid is None else {"valid": valid}
        datasets = {"train": dataset_of(train)}
        if not (valid is None or isinstance(valid, int | float)):
            if not isinstance(valid, Dataset | DataLoader):
                raise DataError(
                    f"val_data is a {type(valid).__name__}, and train_data a {type(train).__name__}: give "
                    "both as Datasets or DataLoaders (several loaders: by a LightningDataModule)"
                )
            keys |= valid_keys(valid, keys.get("collate"))
            datasets["valid"] = dataset_of(valid)
            share = {}
        if twice := sorted(keys.keys() & self._data.keys()):
            raise DataError(
                f"{', '.join(twice)}: both in `data` and settled by the DataLoader; leave it out of `data`"
            )
        columns = {split: tensors_of(dataset) for split, dataset in datasets.items()}
        if None in columns.values() or "collate" in keys:
            of_rows: dict[str, Any] = keep(datasets, self._home / "data", references, root)
        else:
            of_rows = {"source": self._named(columns["train"], "train_data")}
            if "valid" in columns:
                of_rows["valid"] = self._named(columns["valid"], "val_data")
        return {**self._data, **keys, **share, **of_rows}

    def _named(self, data: Any, what: str) -> Any:
        """The data as a recipe names them: a path, a URL or a function; arrays are written to a file."""
        if isinstance(data, str | Path):
            return str(data)
        if callable(data):
            return data
        columns = columns_of(data, what, named_columns(self._data))
        return str(write_columns(columns, self._home / "data"))


def _check_places(given: Mapping[str, Any]) -> None:
    """Raise ``TaskError`` for a key of a recipe that is given in another place."""
    for name in given:
        if name in _OTHER_NAMES:
            raise TaskError(f"{name} is `{_OTHER_NAMES[name]}` here, as for L.Trainer")
        for section in ("data", "limits", "node"):
            if name in getattr(Recipe.model_fields[section].annotation, "model_fields", ()):
                raise TaskError(f"{name} is a key of `{section}`: say {section}={{{name!r}: ...}}")


def _checked(module: Any) -> Any:
    """The class, or the function. Raises ``TaskError`` with the alternatives if it is none."""
    if isinstance(module, pl.LightningModule):
        name = type(module).__name__
        raise TaskError(
            f"fit takes the class, {name}, and not one of its modules: each config makes its own, with its "
            f"hyper-parameters. Say fit({name}, ...), and give the arguments of {name}(...) in the search "
            "space or as further arguments of fit"
        )
    is_class = isinstance(module, type)
    if not callable(module) or (is_class and not issubclass(module, pl.LightningModule)):
        shown = module.__name__ if is_class else f"a {type(module).__name__}"
        raise TaskError(
            f"fit takes a class derived from LightningModule, or a function that makes such modules, and "
            f"{shown} is neither"
        )
    return module


def _checked_callback(callback: Any) -> Any:
    """A callback as a recipe has it; a user's class is unchanged."""
    if isinstance(callback, str | Mapping):
        return callback
    if isinstance(callback, type) and issubclass(callback, pl.Callback):
        return callback.__name__ if callback.__module__.startswith(pl.__name__) else callback
    name = type(callback).__name__
    raise TaskError(
        f"callbacks has a {name}: every unit makes its own, so give the class, or "
        f'{{"class": "{name}", "args": {{...}}}}'
    )


def _section(search: str | Mapping[str, Any] | optuna.Study, monitor: str, mode: str) -> dict[str, Any]:
    """The keys of a recipe's ``search``."""
    if isinstance(search, str):
        return {"method": search}
    if isinstance(search, Mapping):
        return dict(search)
    return studies.section_of(search, Objective.model_validate({"metric": monitor, "mode": mode}))


def _has_loader(module: Any) -> bool:
    """Whether a LightningModule brings training data itself."""
    own = pl.LightningModule.train_dataloader
    return getattr(module, "train_dataloader", own) is not own


def _arguments_of(module: pl.LightningDataModule) -> dict[str, Any]:
    """The arguments that a data module was made with, as it has saved them by ``save_hyperparameters``. A
    default is none, so that it can be searched.

    Raises ``DataError`` if its constructor takes arguments that it has not saved.
    """
    taken = inspect.signature(type(module)).parameters
    saved = {
        name: value
        for name, value in module.hparams.items()
        if name in taken and not values_equal(taken[name].default, value)
    }
    if taken and not module.hparams:
        name = type(module).__name__
        raise DataError(
            f"the arguments of this {name} are unknown, but every node makes its own: call "
            f"save_hyperparameters() in {name}.__init__, or give the class, {name}, if the defaults will do"
        )
    return saved
