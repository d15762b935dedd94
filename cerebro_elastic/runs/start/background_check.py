"""The check whether units equal one ordinary fit, beside the start of a run: it takes only the time that is
left over, and the run learns early what is wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any, Self

from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError, TaskError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.outcome import CheckedConfig, CheckOutcome, why_unlogged, why_untrainable
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.agents import visible_devices
from cerebro_elastic.runs.start.preflight import PreflightResult, preflight, preflight_and_check
from cerebro_elastic.runs.subprocess_call import SubprocessCall

VARIABLE = "CEREBRO_CHECK"
"""Goes before the recipe's ``check``."""
_BATCHES = 2
_CONFIGS = 3
_SECONDS = 300.0


class BackgroundCheck:
    """The preflight of a run, and what it goes on to find out, which is kept in the run's folder. It ends
    with the context, whether it has come to its end or not."""

    def __init__(self, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._stack = ExitStack()
        self._asked: SubprocessCall | None = None
        self.recipe: Recipe | None = None
        self._found: list[CheckedConfig] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def goes_on(self) -> bool:
        """Whether more may be found out."""
        return self._asked is not None and not self._asked.ended

    def preflight(
        self, recipe: Recipe, hparams: Sequence[Mapping[str, Any]], data: str, *, prepare: bool
    ) -> PreflightResult:
        """What the preflight finds; its process goes on, unless the recipe does not want it to."""
        if _policy(recipe) == "off":
            return preflight(recipe, hparams, data, prepare=prepare)
        states = self._stack.enter_context(TemporaryDirectory(dir=self._folder.path, prefix="check-"))
        extent = {
            "batches": _BATCHES,
            "most": _CONFIGS,
            "seconds": _SECONDS,
            "folder": states,
            "beside": True,
        }
        found, asked = preflight_and_check(recipe, hparams, data, prepare=prepare, extent=extent)
        self.recipe, self._asked = recipe, self._stack.enter_context(asked)
        return found

    def look(self, state: State) -> None:
        """Tell what was found out meanwhile. Raises ``TaskError`` for what ends the run: no config can be
        trained, none logs the objective, or units do not equal an ordinary fit and the recipe says
        ``stop``."""
        if self._asked is None or not self.goes_on:
            return
        try:
            for answer in self._asked.answers(wait=False):
                self._take(CheckedConfig.of_json(answer))
        except RunError as died:
            self._say(f"note: whether units equal an ordinary fit was not found out: {died}")
            return
        if not self.goes_on:
            self.judge(state)

    def _take(self, checked: CheckedConfig) -> None:
        self._found.append(checked)
        temporary = self._folder.check.with_suffix(".tmp")
        temporary.write_text(json.dumps([each.as_json() for each in self._found]))
        temporary.replace(self._folder.check)
        if not checked.exactness.outcome.good and not checked.exactness.outcome.bad:
            self._say(f"check of {checked.text}")

    def judge(self, state: State) -> None:
        """End the run by ``TaskError`` if it is to end, now that all is found out."""
        assert self.recipe is not None
        differs = [each for each in self._found if each.exactness.outcome is CheckOutcome.DIFFERS]
        if differs and _policy(self.recipe) == "stop":
            raise TaskError(f"stopped, for the recipe says check: stop. {differs[0].text}")
        wrong = self._hopeless(self.recipe, state)
        if wrong is not None and visible_devices():
            self._say(f"note: in the check, which is done on the CPU: {wrong}")
        elif wrong is not None:
            raise TaskError(f"{wrong}\ncorrect it, and start the run with --fresh")
        else:
            told: set[str] = set()
            for each in self._found:
                if each.exactness.outcome.bad and each.exactness.story not in told:
                    self._say(f"check of {each.text}")
                    told.add(each.exactness.story)

    def _hopeless(self, recipe: Recipe, state: State) -> str | None:
        """What the run itself has done since goes before what was found out."""
        configs = state.configs.values()
        if (why := why_untrainable(self._found)) and not any(c.epoch or c.visited for c in configs):
            return why
        return why_unlogged(recipe, self._found, {name for config in configs for name in config.metrics})


def _policy(recipe: Recipe) -> str:
    return os.environ.get(VARIABLE) or recipe.check
