"""The results of the check whether units of a recipe equal one ordinary fit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.errors import did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.system.words import counted, hparams_text

ORDINARY_FIT = "one ordinary fit"
IN_A_ROW = "training in one process"
"""The same units one after the other, for a task that has no ordinary fit."""
ALONE = "the config alone"
"""Its units, each in its own process."""


class CheckOutcome(StrEnum):
    """The outcome of the check of a config."""

    EQUAL = "equal"
    """Units equal an ordinary fit, bit for bit; except perhaps for values that train nothing, such as a
    logged time; the story names these."""
    NOT_DETERMINISTIC = "not deterministic"
    """Two ordinary fits differ."""
    DIFFERS = "differs"
    """Units do not equal an ordinary fit."""
    FAILED = "failed"
    """The user's code raised in units, and perhaps in an ordinary fit, too."""
    UNKNOWN = "unknown"
    """The check could not be done."""

    @classmethod
    def _missing_(cls, _value: object) -> CheckOutcome:
        """A word of an earlier release, in the folder of one of its runs."""
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Exactness:
    """The result of the check of a config."""

    outcome: CheckOutcome
    """Whether units equal an ordinary fit."""
    story: str = ""
    """The reason, in words."""
    compared: Mapping[str, int] = field(default_factory=dict)
    """The number of compared values of each kind."""
    logged: Sequence[str] = ()
    """The logged metrics."""
    seconds: float = 0.0
    """The seconds of the check."""
    reference: str = ORDINARY_FIT
    """The training that units were compared with, in words."""


@dataclass(frozen=True, slots=True)
class CheckedConfig:
    """A config by its hyper-parameters, and the result of its check."""

    hparams: HParams
    exactness: Exactness

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> CheckedConfig:
        outcome = CheckOutcome(value["exactness"]["outcome"])
        return cls(value["hparams"], Exactness(**{**value["exactness"], "outcome": outcome}))

    @property
    def text(self) -> str:
        """A line with the result."""
        name, result = hparams_text(self.hparams), self.exactness
        text = _TEXTS[result.outcome].format(result.reference)
        return f"{name}: {text}{f': {result.story}' if result.story else ''}"


_TEXTS = {
    CheckOutcome.EQUAL: "units equal {}, bit for bit",
    CheckOutcome.NOT_DETERMINISTIC: "not deterministic",
    CheckOutcome.DIFFERS: "units do not equal {}",
    CheckOutcome.FAILED: "cannot be trained",
    CheckOutcome.UNKNOWN: "not checked",
}


_DIFFERING = (CheckOutcome.DIFFERS, CheckOutcome.NOT_DETERMINISTIC)


class Verdict(StrEnum):
    """The known facts on a run's exactness, in a word."""

    CHECKED = "checked"
    """The representative configs equal an ordinary fit."""
    NOT_CHECKED = "not checked"
    """No check has had a result."""
    DIFFERS = "differs"
    """A config does not equal an ordinary fit, or itself alone; or it is not deterministic."""


@dataclass(frozen=True, slots=True)
class RunExactness:
    """The results so far of the check of a run's configs."""

    checked: Sequence[CheckedConfig] = ()

    @property
    def verdict(self) -> Verdict:
        """The result in a word."""
        if self._with(*_DIFFERING):
            return Verdict.DIFFERS
        return Verdict.CHECKED if self._with(CheckOutcome.EQUAL) else Verdict.NOT_CHECKED

    @property
    def text(self) -> str:
        """The result in a line."""
        match self.verdict:
            case Verdict.DIFFERS:
                differing = self._with(*_DIFFERING)
                names = "; ".join(hparams_text(config.hparams) for config in differing)
                return f"differs in {names}: {_first_line(differing[0])}"
            case Verdict.CHECKED:
                equal = self._with(CheckOutcome.EQUAL)
                configs, reference = counted(len(equal), "config"), equal[0].exactness.reference
                return f"checked: units of {configs} equal {reference}, bit for bit"
            case Verdict.NOT_CHECKED:
                unknown = self._with(CheckOutcome.UNKNOWN)
                why = f": {_first_line(unknown[0])}" if unknown else ""
                return f"not checked{why} (`cerebro check` does it in seconds)"

    def _with(self, *outcomes: CheckOutcome) -> list[CheckedConfig]:
        return [config for config in self.checked if config.exactness.outcome in outcomes]

    def as_json(self) -> dict[str, Any]:
        checked = [config.as_json() for config in self.checked]
        return {"verdict": self.verdict, "text": self.text, "checked": checked}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> RunExactness:
        """The inverse of ``as_json``."""
        return cls([CheckedConfig.of_json(config) for config in value["checked"]])


def _first_line(checked: CheckedConfig) -> str:
    return checked.exactness.story.partition("\n")[0]


def latest(checked: Iterable[CheckedConfig]) -> list[CheckedConfig]:
    """The last result of each config."""
    return list({json.dumps(dict(config.hparams), sort_keys=True): config for config in checked}.values())


def why_untrainable(checked: Sequence[CheckedConfig]) -> str | None:
    """Why no config can be trained, if no tried one can."""
    if checked and all(config.exactness.outcome is CheckOutcome.FAILED for config in checked):
        return checked[0].exactness.story
    return None


def why_unlogged(recipe: Recipe, checked: Sequence[CheckedConfig], known: Collection[str] = ()) -> str | None:
    """An error text if no config logs the objective. Metrics ``known`` from elsewhere count, too."""
    trained = [config.exactness for config in checked if config.exactness.compared]
    logged = {name for exactness in trained for name in exactness.logged}.union(known)
    return unlogged(recipe, logged) if trained else None


def unlogged(recipe: Recipe, logged: Collection[str]) -> str | None:
    """An error text if the objective is not among the values that two epochs ``logged``."""
    missing = [metric for metric in _objectives(recipe) if metric not in logged]
    if not missing or not _validates_soon(recipe):
        return None
    constraints = {constraint.metric for constraint in recipe.objective.constraints}
    what = "a constraint's" if missing[0] in constraints else "the objective's"
    where = recipe.source.where(("objective", "metric"))
    near = did_you_mean(missing[0], logged)
    return f"{where}: {what} metric is {missing[0]!r}, which is not logged in any epoch; {near}"


def _objectives(recipe: Recipe) -> list[str]:
    objectives = recipe.search.objectives or (recipe.objective,)
    metrics = [objective.metric for objective in objectives]
    return [*metrics, *(constraint.metric for constraint in recipe.objective.constraints)]


def _validates_soon(recipe: Recipe) -> bool:
    """Whether the check includes a validation: it trains two epochs, and evaluates no units."""
    every = getattr(recipe.task, "trainer", {}).get("check_val_every_n_epoch", 1)
    return not recipe.validates_apart and every <= 2


def known(folder: RunFolder) -> list[CheckedConfig]:
    """The results kept in a run's folder."""
    if not folder.check.exists():
        return []
    return [CheckedConfig.of_json(value) for value in json.loads(folder.check.read_text())]
