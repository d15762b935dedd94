"""Checks whether units equal one ordinary fit: in the background of a run's start, at low priority, so that
problems appear early; and on its own (``cerebro check``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Self

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError, TaskError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.outcome import (
    CheckedConfig,
    CheckOutcome,
    latest,
    why_unlogged,
    why_untrainable,
)
from cerebro_elastic.runs.folder import RunFolder, home_of
from cerebro_elastic.runs.from_recipe import first_hparams
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.runs.start.places import check_places
from cerebro_elastic.runs.start.preflight import (
    PART,
    CheckMode,
    PreflightResult,
    check_policy,
    preflight,
    preflight_and_check,
)
from cerebro_elastic.runs.start.warm_start import resolve_warm_start
from cerebro_elastic.system.files import write_text
from cerebro_elastic.system.subprocess_call import SubprocessCall
from cerebro_elastic.system.words import option

_SHARE, _MOST_SECONDS = 0.1, 30.0
"""An ended run waits for its check for this share of its own time, and at most these seconds."""
_LOOK_SECONDS = 0.05


class BackgroundCheck:
    """The preflight of a run. Its process then checks configs, and writes the results to the run's folder.
    Leaving the context ends the check, complete or not. Its process has this one's environment, with
    ``env``."""

    def __init__(
        self,
        folder: RunFolder,
        say: Callable[[str], None],
        env: Mapping[str, str] | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        """``elsewhere``: whether the run trains on accelerators, and not on the CPU, as the check does."""
        self._elsewhere = elsewhere
        self._env = env
        self._folder = folder
        self._say = say
        self._stack = ExitStack()
        self._process: SubprocessCall | None = None
        self._began = monotonic()
        self.recipe: Recipe | None = None
        self._checked: list[CheckedConfig] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def goes_on(self) -> bool:
        """Whether the check may still find results."""
        return self._process is not None and not self._process.ended

    def preflight(
        self, recipe: Recipe, hparams: Sequence[Mapping[str, Any]], data: str, *, prepare: bool
    ) -> PreflightResult:
        """The preflight. Its process then checks configs, unless the recipe switches that off."""
        self._folder.check.unlink(missing_ok=True)  # it was of other code
        if check_policy(recipe) == "off":
            return preflight(recipe, hparams, data, prepare=prepare, env=self._env)
        states = self._stack.enter_context(TemporaryDirectory(dir=self._folder.path, prefix="check-"))
        mode = CheckMode(states, beside=True)
        result, process = preflight_and_check(
            recipe, hparams, data, prepare=prepare, mode=mode, env=self._env
        )
        self.recipe, self._process = recipe, self._stack.enter_context(process)
        self._began = monotonic()
        return result

    def poll(self, state: State) -> None:
        """Take in the results that have arrived.

        Raises:
            TaskError: The run should end: no config can be trained, none logs the objective, or units do not
                equal an ordinary fit and the recipe says ``check: stop``.
        """
        if self.goes_on:
            self._take_answers()
            if not self.goes_on:
                self.conclude(state)

    def wait(self) -> None:
        """Once the run is over, give an unfinished check a tenth of the run's time more, at most 30 seconds.
        Its findings are reported with the run's result."""
        seconds = min(_MOST_SECONDS, (monotonic() - self._began) * _SHARE)
        if self.goes_on:
            self._say(f"waiting for the check of the first units, {seconds:.1f} s at most")
        until = monotonic() + seconds
        while self.goes_on and monotonic() < until:
            self._take_answers()
            sleep(_LOOK_SECONDS)

    def _take_answers(self) -> None:
        assert self._process is not None
        try:
            for answer in self._process.answers(wait=False):
                if PART not in answer:
                    self._take(CheckedConfig.of_json(answer))
        except RunError as error:
            self._say(f"note: whether units equal an ordinary fit was not found out: {error}")

    def _take(self, checked: CheckedConfig) -> None:
        self._checked = latest([*self._checked, checked])
        write_text(self._folder.check, json.dumps([config.as_json() for config in self._checked]))
        if checked.exactness.outcome is not CheckOutcome.EQUAL:
            self._say(f"check of {checked.text}")

    def conclude(self, state: State) -> None:
        """Raise ``TaskError`` if the run should end by the complete results."""
        assert self.recipe is not None
        differing = [config for config in self._checked if config.exactness.outcome is CheckOutcome.DIFFERS]
        if differing and check_policy(self.recipe) == "stop":
            raise TaskError(f"stopped, for the recipe says check: stop. {differing[0].text}")
        reason = self._reason_to_end(self.recipe, state)
        if reason is not None and self._elsewhere:
            self._say(f"note: in the check, which is done on the CPU: {reason}")
        elif reason is not None:
            raise TaskError(f"{reason}\ncorrect it, and start the run with {option('fresh', 'fresh=True')}")

    def _reason_to_end(self, recipe: Recipe, state: State) -> str | None:
        """Why the run should end, or ``None``. The run's own results take precedence over the check's."""
        configs = state.configs.values()
        reason = why_untrainable(self._checked)
        if reason and not any(config.epoch or config.visited for config in configs):
            return reason
        return why_unlogged(recipe, self._checked, {name for config in configs for name in config.metrics})


@contextmanager
def check(
    recipe: Recipe, home: str | Path | None, say: Callable[[str], None]
) -> Iterator[tuple[list[HParams], Iterator[CheckedConfig]]]:
    """Check a recipe and its data, as before the start of a run, and then some of its configs; ``say`` each
    next step.

    Yields:
        The first configs of the recipe, and an iterator over the results of the representative ones.

    Raises:
        CerebroError: The recipe, the task or the data are wrong.
    """
    recipe = resolve_warm_start(recipe, home_of(home))
    points = first_hparams(recipe)
    url = recipe.data.url
    check_places(recipe)
    say("the recipe and its data")
    with TemporaryDirectory(prefix="cerebro-check-") as folder, SharedImports() as imports:
        _, process = preflight_and_check(
            recipe,
            points,
            f"{folder}/data" if url is None else recipe.rooted(url),
            prepare=url is None,
            mode=CheckMode(folder, beside=False),
            env=imports.load(recipe, RunFolder(Path(folder)), say),
        )

        def checked() -> Iterator[CheckedConfig]:
            for answer in process.answers(wait=True):
                if PART in answer:
                    say(answer[PART])
                else:
                    yield CheckedConfig.of_json(answer)

        with process:
            yield points, checked()
