"""The values for a recipe's other sections in a file of LightningCLI or Hydra that its task names.

The file is read when the recipe is, so that the run's record has its values. Imports no Lightning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cerebro_elastic.extending.errors import MissingExtra, RecipeError, install_extra
from cerebro_elastic.extending.recipes import read_yaml

CLI = "lightning.pytorch.cli:LightningCLI"
DATA_MODULE, HYDRAS_DATA_MODULE = (
    f"cerebro_lightning.{name}_file:data_module" for name in ("config", "hydra")
)
_ORIGINS = ("url", "source", "dataset", "datamodule")
_OF_FIT = ("ckpt_path", "weights_only")


def completed(recipe: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """The ``recipe`` with the file's values in it: its content as ``task.config``, ``epochs``, ``seed``, and
    the data module. The recipe's own values take precedence. Raises ``RecipeError``."""
    task = recipe["task"]
    config = task.get("config")
    if isinstance(config, str):
        config = _read(root / Path(config).expanduser(), task.get("overrides", ()))
    if not isinstance(config, Mapping):
        return recipe
    trainer = config.get("trainer") or {}
    search = recipe.get("search")
    searched = search.get("max_epochs") if isinstance(search, Mapping) else None
    epochs = recipe.get("epochs") or searched or trainer.get("max_epochs") or 1
    seed = recipe.get("seed", config.get("seed" if is_hydras(config) else "seed_everything"))
    # Links read the run's values from the file.
    config = {**config, "trainer": {**trainer, "max_epochs": epochs}}
    filled = {**recipe, "task": {**task, "config": config}, "epochs": epochs}
    if type(seed) is int:
        filled["seed"] = seed
    if config.get("data") is not None and isinstance(recipe.get("data", {}), Mapping):
        origin = {"datamodule": DATA_MODULE, "args": {"config": config, "cli": task.get("cli", CLI)}}
        if is_hydras(config):
            origin = {"datamodule": HYDRAS_DATA_MODULE, "args": {"config": config}}
        filled["data"] = {**_without_origin(recipe), **origin}
    return filled


def is_hydras(config: Mapping[str, Any]) -> bool:
    """Whether Hydra instantiates the values, and not a LightningCLI."""
    model = config.get("model")
    return isinstance(model, Mapping) and "_target_" in model


def _without_origin(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recipe's ``data``, which may not name other data than the file."""
    data = recipe.get("data", {})
    for key in _ORIGINS:
        if data.get(key) not in (None, DATA_MODULE, HYDRAS_DATA_MODULE):
            raise RecipeError(
                f"data.{key}: the file that task.config names has a section `data`, too: remove one of them"
            )
    return {name: value for name, value in data.items() if name not in ("datamodule", "args")}


def _read(path: Path, overrides: Sequence[str]) -> Mapping[str, Any]:
    """The values for ``fit`` in a LightningCLI file, or those that Hydra composes from its files."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise RecipeError(
            f"task.config: {path}: cannot be read: {exc}; name a file of LightningCLI or Hydra"
        ) from exc
    values = dict(read_yaml(text, path.name).values)
    if "defaults" in values or is_hydras(values):
        return _composed(path, overrides)
    if overrides:
        raise RecipeError(f"task.overrides: Hydra's, and {path.name} is none of its files: write it there")
    if "model" not in values and isinstance(values.get("fit"), Mapping):
        values = dict(values["fit"])
    for name in _OF_FIT:
        if values.pop(name, None) is not None:
            raise RecipeError(
                f"task.config: {path.name} has {name}, and a run begins with fresh modules, or with another "
                "run's config by `search: {start: ...}`: remove it"
            )
    return values


def _composed(path: Path, overrides: Sequence[str]) -> Mapping[str, Any]:
    """The config of Hydra's that this file is the primary one of; interpolations stay as they are."""
    try:
        from hydra import compose, initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
    except ImportError as exc:
        raise MissingExtra(
            f"task.config: {path.name} is Hydra's, not installed: {install_extra('hydra')}"
        ) from exc
    try:
        with initialize_config_dir(str(path.parent.resolve()), version_base="1.3"):
            composed: Any = OmegaConf.to_container(compose(path.stem, overrides=list(overrides)))
    except HydraException as exc:
        raise RecipeError(f"task.config: Hydra composes {path.name} with {list(overrides)}: {exc}") from exc
    assert isinstance(composed, dict)
    if not is_hydras(composed):
        raise RecipeError(
            f"task.config: {path.name} has no section `model` with a `_target_`: name the module to train"
        )
    return composed
