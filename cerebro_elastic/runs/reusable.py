"""What a run could take over from earlier ones, as it was found when the run was opened: a file beside its
checkpoints, which every machine that leads the run reads. And what it has taken over, and why not the
rest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.core.history.lineage import born, in_order
from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.reuse import NOTHING, Reusable, standing
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.system.files import Place, in_a_hurry, locate, read, translated, write
from cerebro_elastic.system.words import option

_FILE = "reuse.json"


def write_reusable(storage: str, reusable: Reusable) -> str:
    """Write the file. Returns its digest, for the spec."""
    text = encode(reusable).encode()
    with translated(CheckpointError, f"cannot write {_FILE}"):
        write(_place(storage), [text])
    return hashlib.sha256(text).hexdigest()


def read_reusable(spec: Spec, say: Callable[[str], None] = lambda _text: None) -> Reusable:
    """What the run of ``spec`` may take over. Without its file, or with another, that is nothing: the run
    trains all, and ``say`` gets the reason."""
    if not spec.reuse:
        return NOTHING
    place = _place(spec.storage)
    try:
        with translated(CheckpointError, f"cannot read {place}"):
            text = read(place)
        if hashlib.sha256(text).hexdigest() == spec.reuse:
            return decode(text, Reusable)
        why = f"{place} is not as it was written"
    except (CheckpointError, FileNotFoundError, UnreadableValue) as error:
        why = str(error)
    say(f"nothing is taken over from earlier runs, and all is trained: {why}")
    return NOTHING


def _place(storage: str) -> Place:
    return locate(storage) / _FILE


@dataclass(frozen=True, slots=True)
class ExplainedConfig:
    """What one config has taken over."""

    config: str
    reused: int
    """How many of its visits earlier runs have made."""
    trained: int
    """How many the run has trained."""
    runs: tuple[str, ...]
    """The runs that made the visits that it has taken over."""
    why: str
    """Why it has taken over nothing; empty if it has taken over some."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a run has taken over from earlier ones, and why the rest was trained.

    Example:
        >>> explanation = Run.open("sweep").explain()
        >>> explanation.looked, [config.reused for config in explanation.configs]
        (True, [0, 0])
    """

    run: str
    looked: bool
    """Whether it was to take over what earlier runs had made."""
    configs: Sequence[ExplainedConfig]
    earlier: Mapping[str, Sequence[str]]
    """By earlier run: why nothing of it could be taken over, or less than all. A run that is
    not here had all that was asked for, or nothing that was."""


def explain(result: RunResult) -> Explanation:
    spec, view = result.spec, result.view
    unreadable: list[str] = []
    with in_a_hurry():
        reusable = read_reusable(spec, unreadable.append)
    configs = []
    for config in in_order(view.state.configs.values()):
        visits = view.visits.get(config.id, ())
        reused = [visit for visit in visits if visit.reused]
        place = standing(born(config))
        why = "" if reused else "".join(unreadable) or why_nothing(bool(spec.reuse), reusable, place)
        runs = tuple(dict.fromkeys(visit.reused for visit in reused))
        configs.append(ExplainedConfig(config.id, len(reused), len(visits) - len(reused), runs, why))
    return Explanation(result.run, bool(spec.reuse), configs, reusable.why_not)


def why_nothing(looked: bool, reusable: Reusable, place: str) -> str:
    """Why a config has taken over nothing that begins at this ``place``."""
    if not looked:
        return f"the run was not asked to take over anything ({option('reuse', 'reuse=True')} does)"
    if place in reusable.steps:
        return "no node here is of the kind that trained it in an earlier run"
    if place in reusable.lacking:
        return reusable.lacking[place]
    if reusable.equal:
        return "no earlier run with the same code, data and versions has trained its hyper-parameters"
    if reusable.why_not:
        nearest, reasons = reusable.nearest()
        return f"not from run {nearest}: {'; '.join(reasons[:2])}"
    return "no earlier run has its recipe in this folder"
