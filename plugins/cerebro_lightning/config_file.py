"""Modules, data modules, callbacks and trainer arguments, as the user's LightningCLI makes them of a file's
values. Each config gets its own ``LightningCLI``, which makes everything except the trainer."""

from __future__ import annotations

import copy
import inspect
import json
import warnings
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from jsonargparse import ArgumentError
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import import_object
from cerebro_elastic.extending.state import rng
from cerebro_lightning.export import how_to_load
from cerebro_lightning.trainer_arguments import DECIDED_BY_RUN, checked_trainer_settings, notes_on_dropped

_OF_ALL = ("trainer", "seed_everything")
"""Sections of a file that are the same for all configs."""


class ConfigFile:
    """The values of a LightningCLI file, and the class or function that makes a ``LightningCLI`` of them.

    Raises ``TaskError`` if that cannot be imported, or for arguments of the trainer that units cannot honour.
    """

    def __init__(self, config: Mapping[str, Any], cli: str, root: Path) -> None:
        import_object(cli, root)
        self._config, self._cli = config, cli

    def module(self, **searched: Any) -> pl.LightningModule:
        """The module of a config; ``searched`` are its hyper-parameters, by the file's sections."""
        module: pl.LightningModule = _cli(self._config, self._cli, searched).model
        return module

    def check(self, searched: Mapping[str, Any]) -> None:
        """Raise ``TaskError`` for hyper-parameters that would change the data module by a link, which the
        processes that make batches do not get."""
        of_data = {name: value for name, value in searched.items() if name == "data"}
        given = [_cli(self._config, self._cli, each).config.get("data") for each in (searched, of_data)]
        if given[0] != given[1]:
            others = ", ".join(name for name in searched if name != "data")
            raise TaskError(
                f"the data module depends by link_arguments on {others}, which is searched: search its own "
                "argument, `data....`, and link the other from it"
            )

    def how_to_load(self, searched: Mapping[str, Any]) -> str:
        """Python code that loads an exported checkpoint."""
        arguments = {"args": _merged(self._config, searched), "run": False}
        return how_to_load(self._cli, arguments, ".model")

    def notes(self) -> list[str]:
        """The run's notes before its start."""
        return notes_on_dropped(self._config["trainer"])

    def trainer(self, searched: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of ``L.Trainer`` that count in units, without callbacks."""
        return self._trainer_and_callbacks(searched)[0]

    def callbacks(self, searched: Mapping[str, Any]) -> list[pl.Callback]:
        """Fresh ones."""
        return copy.deepcopy(self._trainer_and_callbacks(searched)[1])

    def _trainer_and_callbacks(
        self, searched: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], list[pl.Callback]]:
        return _settings(json.dumps(self._config), self._cli, json.dumps(searched))


def data_module(
    config: Mapping[str, Any], cli: str, data: Mapping[str, Any] | None = None
) -> pl.LightningDataModule:
    """The data module of a file's values; ``data`` are hyper-parameters."""
    module: pl.LightningDataModule = _cli(config, cli, {} if data is None else {"data": data}).datamodule
    return module


@lru_cache(2)
def _settings(config: str, cli: str, searched: str) -> tuple[Mapping[str, Any], list[pl.Callback]]:
    """By JSON, for the present unit and the one before."""
    with rng.borrowed():
        made: Any = _cli(json.loads(config), cli, json.loads(searched))
        given = dict(made.trainer)
    callbacks = given.pop("callbacks")
    defaults = inspect.signature(pl.Trainer).parameters
    own = {name: value for name, value in given.items() if value != defaults[name].default}
    if own.get("devices") == 1:
        del own["devices"]
    counting = {name: value for name, value in own.items() if name not in DECIDED_BY_RUN}
    return checked_trainer_settings(counting), callbacks


def _cli(config: Mapping[str, Any], cli: str, searched: Mapping[str, Any]) -> LightningCLI:
    """The ``LightningCLI`` of a config, whose ``trainer`` is a mapping of arguments.

    Raises ``TaskError`` for values that its parser refuses.
    """
    if of_all := sorted(searched.keys() & set(_OF_ALL)):
        raise TaskError(f"{', '.join(of_all)}: the same for all configs of a run: set it in the file")
    values = copy.deepcopy(_merged(config, searched))  # the parser changes them
    values["seed_everything"] = torch.initial_seed() % 2**32  # the initial seed of the module, or the data
    values["trainer"] = {**values.get("trainer", {}), "logger": False}
    module, _, name = cli.partition(":")
    make = attrgetter(name)(import_module(module))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LightningCLI's args parameter is intended to run")
        try:
            made: LightningCLI = make(
                args=values,
                run=False,
                save_config_callback=None,
                trainer_class=_Arguments,
                parser_class=_Parser,
            )
        except ArgumentError as exc:
            raise TaskError(f"task.config, as {cli} reads it: {exc}") from exc
    return made


def _merged(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Both, the ``others`` on top, key by key."""
    merged = dict(values)
    for name, value in others.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merged(merged[name], value) if both else value
    return merged


class _Parser(LightningArgumentParser):
    """It raises its errors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "exit_on_error": False})


class _Called(type):
    def __call__(cls, **arguments: Any) -> Any:
        return arguments


class _Arguments(pl.Trainer, metaclass=_Called):
    """In place of the trainer: its arguments."""
