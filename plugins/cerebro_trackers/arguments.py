"""The `args` of the trackers in a recipe's `loggers`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from cerebro_elastic.extending.recipes import Section


class MlflowArguments(Section):
    """The `args` of the logger `mlflow`."""

    tracking_uri: str | None = None
    """The tracking server or database. The default is `MLFLOW_TRACKING_URI`, else `mlflow.db` beside the
    run's folder."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """The experiment's name. The default is `MLFLOW_EXPERIMENT_NAME`, else `cerebro-elastic`."""

    @field_validator("tracking_uri")
    @classmethod
    def _no_password(cls, value: str | None) -> str | None:
        if value is not None and re.search(r"://[^/\s]*@", value):
            raise ValueError(
                "a recipe is written down and shown, so it may hold no login: remove `tracking_uri` here and "
                "set MLFLOW_TRACKING_URI in the environment of each machine"
            )
        return value


class WandbArguments(Section):
    """The `args` of the logger `wandb`."""

    project: Annotated[str, Field(pattern=r"^[^/\\#?%:]{1,128}$")] | None = None
    """The project. The default is `WANDB_PROJECT`, else `cerebro-elastic`."""
    entity: Annotated[str, Field(min_length=1)] | None = None
    """The user or team. The default is that of the login."""
    mode: Literal["online", "offline"] | None = None
    """`offline`: into files beside the checkpoints, for `wandb sync`. The default is `WANDB_MODE`, else
    `online`."""
