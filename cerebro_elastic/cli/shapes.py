"""The output of each command with ``--json``: one object, of the shape in the command's row of ``SHAPES``.

The reference lists their keys (``docs/generated.py``), and a test compares the commands' output with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from typing_extensions import TypedDict  # pydantic needs this one up to Python 3.11

from cerebro_elastic.core.decisions.gangs import Wait
from cerebro_elastic.core.invariants import Violation
from cerebro_elastic.core.model.attempts import Resources
from cerebro_elastic.core.model.nodes import Stall
from cerebro_elastic.core.model.units import Measurement, RecordHead
from cerebro_elastic.reporting.budget import BudgetOutlook
from cerebro_elastic.reporting.gap import Gap
from cerebro_elastic.reporting.profiles import ProfileRow
from cerebro_elastic.runs.catalog import RunSummary
from cerebro_elastic.runs.comparison import Comparison
from cerebro_elastic.runs.exactness.outcome import CheckedConfig
from cerebro_elastic.runs.forecast.live import LiveForecast
from cerebro_elastic.runs.removal import Pruning
from cerebro_elastic.runs.start.doctor import Finding
from cerebro_elastic.runs.verbs import Done

Shape = TypeVar("Shape")


class RunsJson(TypedDict):
    """The runs of a home."""

    home: str
    """The folder of runs."""
    runs: list[RunSummary]
    """The run whose record changed last is first."""


class RmJson(TypedDict):
    """The removed parts of each run."""

    runs: list[Pruning]


class ConfigJson(TypedDict):
    """A config's state."""

    status: str
    """`live`, `finished`, `stopped` or `failed`."""
    hparams: Mapping[str, Any]
    """Its hyper-parameters."""
    epoch: int
    """The number of its full epochs."""
    visited: list[int]
    """The visited partitions of its present epoch."""
    metrics: Mapping[str, float | None]
    """The metrics at the end of its last full epoch."""
    best: float | None
    """The best value of the objective at the end of any epoch; a mean if the config has several trainings."""
    member_of: str
    """The config whose training on a fold, or with one of several seeds, it is; else empty."""


class StatusJson(TypedDict):
    """A run's state."""

    run: str
    live: bool
    outcome: str | None
    """How it ended; `null` while it has not."""
    leader: str | None
    objective: Mapping[str, Any]
    """The section `objective` of the recipe."""
    best: str | None
    """The config with the best value of the objective."""
    nodes: Mapping[str, str | None]
    """By node: the unit that it trains."""
    saving: Mapping[str, str]
    """By node: the unit whose state it saves."""
    queued: Mapping[str, str]
    """By node: its next unit."""
    draining: Mapping[str, float]
    """By node that was asked to leave: the seconds that it has for that."""
    stalled: Mapping[str, Stall]
    """The stalled nodes."""
    quarantined: Mapping[str, str]
    """By node that gets no units: why."""
    resources: Mapping[str, Resources]
    """By node: the resources that its last unit used."""
    configs: Mapping[str, ConfigJson]
    gap: Gap | None
    """Its distance from the best possible schedule."""
    budget: BudgetOutlook | None
    """The forecast of its budget of time and cost; `null` without one, and before the first unit."""
    waits: Mapping[str, Wait]
    """By config that cannot be trained on the present nodes."""
    profiles: list[ProfileRow]
    """The costs of each strategy, for each config and kind of node; empty with one strategy."""
    head: RecordHead | None
    """The head of the record: see [verify](cli.md#cerebro-verify)."""


class RowJson(TypedDict):
    """A config of the leaderboard."""

    config: str
    hparams: Mapping[str, Any]
    status: str
    reason: str
    """Why it was stopped or has failed."""
    best: float | None
    """The best value of the objective at the end of any epoch."""
    best_epoch: int | None
    """The number of that epoch, from 1."""
    metrics: Mapping[str, float | None]
    """The metrics at the end of its last full epoch."""
    checkpoint: str | None
    """The URL of its state at the end of its best epoch; `null` if it has several trainings."""
    std: float | None
    """With folds or several seeds: the standard deviation of its trainings at the best epoch."""
    interval: float | None
    """Then half the 95 % interval of the mean, which `best` is."""
    scores: Mapping[str, float | None]
    """Then the best value of each training, by its id."""
    test: Measurement | None
    """The measurement of that state on the test set; `null` without one, or with several trainings (`cerebro
    test --json` has these)."""


class ExactnessJson(TypedDict):
    """Whether the run's units were found to equal an ordinary fit."""

    verdict: str
    text: str
    """The verdict as a sentence."""
    checked: list[CheckedConfig]


class OutcomeJson(TypedDict):
    """The outcome of a run."""

    run: str
    folder: str
    head: RecordHead | None
    """The head of the record: see [verify](cli.md#cerebro-verify)."""
    objective: Mapping[str, Any]
    """The section `objective` of the recipe."""
    front: list[str]
    """The configs that no other one surpasses in all objectives; with one objective, the best."""
    exactness: ExactnessJson
    leaderboard: list[RowJson]
    """The best config first."""


class VerifyJson(TypedDict):
    """The findings of a check of a record."""

    visits: int
    violations: list[Violation]
    """Empty if the record is sound."""
    notes: list[str]
    """Remarks that are not violations."""
    head: RecordHead | None


class VisitJson(TypedDict):
    """A visit trained again."""

    unit: str
    node: str
    """The node that trained it in the run."""
    digest: str
    """The digest of its state now."""
    same: bool
    differences: list[str]


class ReplayJson(TypedDict):
    """A config trained again."""

    run: str
    config: str
    same: bool
    """Whether all is bit-identical to the record."""
    visits: list[VisitJson]
    derived: list[str]
    """Differences in the values derived from the visits: best value, best checkpoint, `metrics.csv`."""
    notes: list[str]
    """Code and versions that differ from the run's."""


class ExportJson(TypedDict):
    """An exported model."""

    run: str
    config: str
    epoch: int
    """The number of its full epochs."""
    folder: str
    not_carried: list[str]
    """The parts of the config's state that the files do not have."""


class TestJson(TypedDict):
    """The measurements of configs on the test set."""

    run: str
    measured: list[Measurement]
    """The best config by validation first."""
    before: int
    """The number of measurements in the record before the command."""


class DoctorJson(TypedDict):
    """What works on this machine."""

    findings: list[Finding]


class CheckJson(TypedDict):
    """Whether units of a recipe equal one ordinary fit."""

    configs: int
    """The number of configs with which the recipe begins."""
    checked: list[CheckedConfig]
    wrong: str | None
    """Why the recipe cannot be trained."""


class SimulatedJson(TypedDict):
    """A simulated run."""

    run: str
    outcome: str | None
    seconds: float
    idle: float
    """The share of the nodes' time in which they were idle."""
    visits: int
    configs: Mapping[str, int]
    """The number of configs of each status."""
    nodes: Mapping[str, Mapping[str, float]]
    """By node: the seconds of each of its activities."""


class PlannedJson(TypedDict):
    """Numbers of nodes and partitions, and a strategy."""

    nodes: int
    partitions: int
    strategy: str
    ranks: int
    """The ranks of each unit."""


class OptionJson(PlannedJson):
    """A forecast for one choice of numbers."""

    seconds: float
    node_hours: float
    cost: float | None
    """`null` without `--price`."""
    gap: float
    """The distance of the schedule from a bound, as a share."""
    idle: float
    """The share of the nodes' time in which they are idle."""
    memory: int
    """Bytes of a rank on top of its process's base memory."""


class LeftOutJson(PlannedJson):
    """A choice that is left out."""

    why: str


class MeasuredJson(TypedDict):
    """The measurements of a config and a strategy."""

    config: str
    strategy: str
    beside: int
    """The number of units trained at once."""
    batch: float
    """Seconds of a batch."""
    data: float
    """Seconds of making a batch."""
    fixed: float
    """Seconds of a unit without its batches."""
    hop: float | None
    """Seconds of a hop; `null` if the task cannot leave a unit in the middle."""
    saving: float
    """Seconds of saving the state."""
    bytes: int
    """The peak of a rank's memory."""
    state: int | None
    """Bytes of the state."""
    refusal: str | None


class PlannedRecipeJson(TypedDict):
    """The forecast of a recipe."""

    configs: int
    rows: int
    bytes: int | None
    """The size of the data; `null` if unknown."""
    options: list[OptionJson]
    best: OptionJson
    """The option that is best in time times cost."""
    left_out: list[LeftOutJson]
    profiles: list[MeasuredJson]
    traffic: Mapping[str, float]
    """Bytes over the network by method."""


class PlanJson(TypedDict):
    """A forecast: one of the three, the others are `null`."""

    measured: PlannedRecipeJson | None
    """Of a recipe, with the measurements made here."""
    simulated: SimulatedJson | None
    """With `--from`."""
    live: LiveForecast | None
    """Of a live run."""


def filled(shape: type[Shape], source: object, **others: Any) -> Shape:
    """An object of this shape: the values of ``source`` under the names of its keys, and the ``others``."""
    own = {key: getattr(source, key) for key in shape.__annotations__ if key not in others}
    return shape(**own, **others)


SHAPES: Mapping[str, Any] = {
    "run": OutcomeJson,
    "extend": OutcomeJson,
    "retry": OutcomeJson,
    "runs": RunsJson,
    "status": StatusJson,
    "runs RUN RUN": Comparison,
    "rm --checkpoints": RmJson,
    "stop": Done,
    "resume": Done,
    "add": Done,
    "drain": Done,
    "verify": VerifyJson,
    "replay": ReplayJson,
    "test": TestJson,
    "export": ExportJson,
    "check": CheckJson,
    "plan": PlanJson,
    "doctor": DoctorJson,
}
"""By command, and option if that decides: the shape of its output with ``--json``."""
