"""Weights & Biases: a group for the run, and in it a run for each config, with the same id for all
leaders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cerebro_elastic.extending.errors import RecipeError
from cerebro_elastic.extending.logging import ConfigEnd, HParams, Logged
from cerebro_trackers.arguments import WandbArguments
from cerebro_trackers.tags import TRACKED_AS, config_tags, end_tags

if TYPE_CHECKING:
    import wandb


class WandbTracker:
    """Writes the logged values of a run's configs to W&B. Errors of W&B's client pass through.

    Args:
        run: The run's id, which names the group.
        identity: Distinguishes it from another run of this id.
        folder: The folder of W&B's files.
        project: The project's name.
        entity: The user or team.
        mode: ``online`` or ``offline``; by default the environment decides.

    Raises:
        RecipeError: The client has no login, and is not offline.
    """

    Arguments: ClassVar[type[WandbArguments]] = WandbArguments
    environment: ClassVar[Mapping[str, str]] = {"WANDB_ERROR_REPORTING": "false", "DO_NOT_TRACK": "true"}
    buffers: ClassVar[bool] = True

    def __init__(
        self,
        run: str,
        identity: str,
        folder: str,
        project: str | None = None,
        entity: str | None = None,
        mode: Literal["online", "offline"] | None = None,
    ) -> None:
        self._run = run
        self._identity = identity
        self._folder = Path(folder)
        self._project = project or os.environ.get("WANDB_PROJECT") or TRACKED_AS
        self._entity = entity
        self._mode = mode
        self._runs: dict[str, wandb.Run] = {}
        self._begin()

    def write(self, logged: Logged) -> None:
        """Write a visit's rows. W&B joins rows of the same step, and drops rows of steps that are over."""
        run = self._run_of(logged.config, logged.hparams, logged.parent)
        for time, step, metrics in logged.timed_rows():
            run.log({**metrics, "_timestamp": time}, step=step)

    def end(self, end: ConfigEnd) -> None:
        """Note that a config has ended. W&B calls it failed or finished."""
        run = self._run_of(end.config, end.hparams, end.parent)
        run.summary.update(end_tags(end))
        del self._runs[end.config]
        run.finish(exit_code=int(end.status == "failed"))

    def close(self) -> None:
        """Write the remaining rows. The next leader continues with the same runs."""
        for run in self._runs.values():
            run.finish()
        self._runs.clear()

    def _begin(self) -> None:
        """Configure the client, and check that it has a login."""
        import wandb

        if self._mode is not None:
            wandb.setup(wandb.Settings(mode=self._mode))
        online = (self._mode or os.environ.get("WANDB_MODE") or "online") == "online"
        if online and not wandb.login(prompt=False, verify=False):
            raise RecipeError(
                "loggers: wandb has no login on this machine: use `wandb login` or set WANDB_API_KEY; or "
                "give wandb the argument `mode: offline`, and upload its files with `wandb sync` later"
            )

    def _run_of(self, config: str, hparams: HParams, parent: str) -> wandb.Run:
        """The run of a config: a new one, an open one, or one closed by an earlier leader."""
        import wandb

        if config not in self._runs:
            self._folder.mkdir(parents=True, exist_ok=True)  # else W&B takes another
            self._runs[config] = wandb.init(
                id=f"{self._identity}-{config}",
                name=f"{self._run}-{config}",
                group=self._run,
                config={**config_tags(self._run, config, parent), **hparams},
                project=self._project,
                entity=self._entity,
                mode=self._mode,
                dir=self._folder,
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(
                    console="off",
                    silent=True,
                    disable_git=True,
                    disable_code=True,
                    x_disable_stats=True,
                    x_disable_meta=True,
                ),
            )
        return self._runs[config]
