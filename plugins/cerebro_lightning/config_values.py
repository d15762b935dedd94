"""A recipe whose task names a LightningCLI file: what the file says of the recipe's other sections.

The file is read when the recipe is, so that the run's record has its values. Imports no Lightning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cerebro_elastic.extending.errors import RecipeError
from cerebro_elastic.extending.recipes import read_yaml

CLI = "lightning.pytorch.cli:LightningCLI"
DATA_MODULE = "cerebro_lightning.config_file:data_module"
_ORIGINS = ("url", "source", "dataset", "datamodule")
_OF_FIT = ("ckpt_path", "weights_only")


def completed(recipe: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """The ``recipe`` with the file's values in it: its content as ``task.config``, ``epochs``, ``seed``, and
    the data module. What the recipe says itself counts. Raises ``RecipeError``."""
    task = recipe["task"]
    config = task.get("config")
    if isinstance(config, str):
        config = _read(root / Path(config).expanduser())
    if not isinstance(config, Mapping):
        return recipe
    trainer = config.get("trainer") or {}
    search = recipe.get("search")
    searched = search.get("max_epochs") if isinstance(search, Mapping) else None
    epochs = recipe.get("epochs") or searched or trainer.get("max_epochs") or 1
    seed = recipe.get("seed", config.get("seed_everything"))
    # What links read from the file is what the run does.
    config = {**config, "trainer": {**trainer, "max_epochs": epochs}}
    filled = {**recipe, "task": {**task, "config": config}, "epochs": epochs}
    if type(seed) is int:
        filled["seed"] = seed
    if config.get("data") is not None:
        arguments = {"config": config, "cli": task.get("cli", CLI)}
        filled["data"] = {**_without_origin(recipe), "datamodule": DATA_MODULE, "args": arguments}
    return filled


def _without_origin(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recipe's ``data``, which may not name other data than the file."""
    data = recipe.get("data", {})
    for key in _ORIGINS:
        if data.get(key) not in (None, DATA_MODULE):
            raise RecipeError(
                f"data.{key}: the file that task.config names has a section `data`, too: remove one of them"
            )
    return {name: value for name, value in data.items() if name not in ("datamodule", "args")}


def _read(path: Path) -> Mapping[str, Any]:
    """The values for ``fit`` in a LightningCLI file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise RecipeError(
            f"task.config: {path}: cannot be read: {exc}; name a LightningCLI file, relative to the recipe's"
        ) from exc
    values = dict(read_yaml(text, path.name).values)
    if "model" not in values and isinstance(values.get("fit"), Mapping):
        values = dict(values["fit"])
    for name in _OF_FIT:
        if values.pop(name, None) is not None:
            raise RecipeError(
                f"task.config: {path.name} has {name}, and a run begins with fresh modules, or with another "
                "run's config by `search: {start: ...}`: remove it"
            )
    return values
