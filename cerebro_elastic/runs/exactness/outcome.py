"""What came of the check whether units of a recipe equal one ordinary fit."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.errors import did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.reporting.tables import hparams_text
from cerebro_elastic.runs.folder import RunFolder


class Outcome(StrEnum):
    """``VARIES``: equal, but for what differs between ordinary fits, too, and is not trained by, such as a
    time that is logged. ``FAILED``: the user's code raised, in units and in an ordinary fit. ``REFUSED``:
    only units did. ``UNKNOWN``: nothing can be said."""

    EQUAL = "equal"
    VARIES = "varies"
    NOT_DETERMINISTIC = "not deterministic"
    DIFFERS = "differs"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @property
    def good(self) -> bool:
        return self in (Outcome.EQUAL, Outcome.VARIES)

    @property
    def bad(self) -> bool:
        """Whether the config cannot be trained."""
        return self in (Outcome.FAILED, Outcome.REFUSED)


@dataclass(frozen=True, slots=True)
class Exactness:
    """What came of the check of a config: why, in words; how many values of each kind were ``compared``; the
    metrics that were ``logged``."""

    outcome: Outcome
    story: str = ""
    compared: Mapping[str, int] = field(default_factory=dict)
    logged: Sequence[str] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Checked:
    """A config by its hyper-parameters, and what came of its check."""

    hparams: HParams
    exactness: Exactness

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Checked:
        told = value["exactness"]
        return cls(value["hparams"], Exactness(**{**told, "outcome": Outcome(told["outcome"])}))

    @property
    def text(self) -> str:
        """For people, whatever came of it."""
        name, found = hparams_text(self.hparams), self.exactness
        return f"{name}: {_SAID[found.outcome]}{f': {found.story}' if found.story else ''}"


_SAID = {
    Outcome.EQUAL: "units equal one ordinary fit, bit for bit",
    Outcome.VARIES: "units equal one ordinary fit, bit for bit",
    Outcome.NOT_DETERMINISTIC: "not deterministic",
    Outcome.DIFFERS: "units do not equal one ordinary fit",
    Outcome.REFUSED: "cannot be trained in units",
    Outcome.FAILED: "cannot be trained",
    Outcome.UNKNOWN: "not checked",
}


def untrainable(all_of: Sequence[Checked]) -> str | None:
    """Why no config can be trained, if none of those that were tried can."""
    if all_of and all(each.exactness.outcome.bad for each in all_of):
        return all_of[0].exactness.story
    return None


def unlogged(recipe: Recipe, all_of: Sequence[Checked], known: Collection[str] = ()) -> str | None:
    """Which objective no config logs, and what they log; metrics that are ``known`` from elsewhere count,
    too."""
    trained = [each.exactness for each in all_of if each.exactness.compared]
    logged = {name for each in trained for name in each.logged}.union(known)
    missing = [metric for metric in _objectives(recipe) if metric not in logged]
    if not trained or not missing or not _validates_soon(recipe):
        return None
    where = recipe.source.where(("objective", "metric"))
    near = did_you_mean(missing[0], logged)
    return f"{where}: the objective's metric is {missing[0]!r}, which is not logged in any epoch; {near}"


def _objectives(recipe: Recipe) -> list[str]:
    several = [objective.metric for objective in getattr(recipe.search, "objectives", ())]
    return several or [recipe.objective.metric]


def _validates_soon(recipe: Recipe) -> bool:
    """Whether the check has come to a validation: it trains two epochs, and evaluates no units."""
    every = getattr(recipe.task, "trainer", {}).get("check_val_every_n_epoch", 1)
    return recipe.validation == "epoch" and every <= 2


def known(folder: RunFolder) -> list[Checked]:
    """What was found out about a run."""
    if not folder.check.exists():
        return []
    return [Checked.of_json(each) for each in json.loads(folder.check.read_text())]
