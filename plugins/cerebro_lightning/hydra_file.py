"""Modules, data modules, callbacks and trainer arguments, as Hydra makes them of a composed config.

The layout is that of lightning-hydra-template: sections ``model``, ``data``, ``callbacks`` and ``trainer``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cerebro_elastic.extending.errors import TaskError
from cerebro_lightning.export import how_to_load
from cerebro_lightning.trainer_arguments import DECIDED_BY_RUN, checked_trainer_settings, notes_on_dropped
from cerebro_lightning.trainer_settings import SHOWING


class HydraFile:
    """The values of a composed config, with their interpolations."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def module(self, **searched: Any) -> pl.LightningModule:
        """The module of a config; ``searched`` are its hyper-parameters, by the file's sections."""
        module: pl.LightningModule = _made(_with(self._config, searched).model, "model")
        return module

    def check(self, searched: Mapping[str, Any]) -> None:
        """Raise ``TaskError`` for hyper-parameters that the data module's values are interpolated from: the
        processes that make batches do not get them."""
        of_data = {name: value for name, value in searched.items() if name == "data"}
        given = [_resolved(_with(self._config, each), "data") for each in (searched, of_data)]
        if given[0] != given[1]:
            others = ", ".join(name for name in searched if name != "data")
            raise TaskError(
                f"values of `data` are interpolated from {others}, which is searched: search `data....`, and "
                "interpolate the other from it"
            )

    def how_to_load(self, searched: Mapping[str, Any]) -> str:
        """Python code that loads an exported checkpoint."""
        model = _resolved(_with(self._config, searched), "model")
        return how_to_load("hydra.utils:instantiate", {"config": model})

    def notes(self) -> list[str]:
        """What the run says before its start."""
        return notes_on_dropped(self._config["trainer"])

    def trainer(self, searched: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of ``L.Trainer`` that count in units, without callbacks."""
        config = _with(self._config, searched)
        for name in [name for name in config.trainer if name in DECIDED_BY_RUN or name == "_target_"]:
            del config.trainer[name]
        given: dict[str, Any] = _resolved(config, "trainer")
        if given.get("devices") in (1, "auto"):
            del given["devices"]
        return checked_trainer_settings(given)

    def callbacks(self, searched: Mapping[str, Any]) -> list[pl.Callback]:
        """Fresh ones, without those that only show progress or keep files, whose paths only a script has."""
        sections = (_with(self._config, searched).get("callbacks") or {}).values()
        return [
            _made(section, "callbacks")
            for section in sections
            if section and "_target_" in section and not issubclass(get_class(section["_target_"]), SHOWING)
        ]


def data_module(config: Mapping[str, Any], data: Mapping[str, Any] | None = None) -> pl.LightningDataModule:
    """The data module of a config's values; ``data`` are hyper-parameters."""
    module: pl.LightningDataModule = _made(_with(config, {} if data is None else {"data": data}).data, "data")
    return module


def _with(config: Mapping[str, Any], searched: Mapping[str, Any]) -> DictConfig:
    """The config with hyper-parameters in it, which it must have."""
    if "trainer" in searched:
        raise TaskError("trainer: the same for all configs of a run: set it in the file, or in `overrides`")
    made = OmegaConf.create(dict(config))
    OmegaConf.set_struct(made, True)
    try:
        merged = OmegaConf.merge(made, dict(searched))
    except OmegaConfBaseException as exc:
        raise TaskError(f"task.config has no such hyper-parameter: {' '.join(str(exc).split())}") from exc
    OmegaConf.set_struct(merged, False)
    assert isinstance(merged, DictConfig)
    return merged


def _resolved(config: DictConfig, section: str) -> Any:
    """The values of a section, interpolated."""
    try:
        return OmegaConf.to_container(config.get(section) or OmegaConf.create({}), resolve=True)
    except OmegaConfBaseException as exc:
        raise _unmade(section, exc) from exc


def _made(section: DictConfig, name: str) -> Any:
    try:
        return instantiate(section)
    except (OmegaConfBaseException, InstantiationException) as exc:
        raise _unmade(name, exc) from exc


def _unmade(name: str, exc: Exception) -> TaskError:
    return TaskError(
        f"task.config: {name}: {' '.join(str(exc).split())}; values of Hydra's scripts alone, such as "
        "${hydra:runtime.output_dir}, may be given by task.overrides"
    )
