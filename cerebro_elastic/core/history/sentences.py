"""Events as sentences: for the terminal, the pages and reports."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_elastic.config import A_DAY
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReady,
    NodeRecovered,
    NodeReleased,
    NodeStalled,
    RunExtended,
    StateRead,
    UnitCommitted,
    UnitFailed,
    UnitsReused,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.run import Extension
from cerebro_elastic.core.model.state import State
from cerebro_elastic.system.words import counted, hparams_text


@dataclass(frozen=True, slots=True)
class Mark:
    """An event out of the ordinary."""

    text: str
    """What happened, as a sentence."""
    node: str | None = None
    """The node on which it happened, if it was on one."""
    fault: bool = False
    """Whether it is a fault, not a request or a recovery."""


def mark_of(event: Event, before: State) -> Mark | None:
    """The mark of an event in the state ``before`` it; ``None`` for events of any ordinary run."""
    match event:
        case LeaderChanged(leader=leader):
            return Mark(f"{leader} leads the run" if leader else "nobody leads the run")
        case NodeJoined(node=node):
            return Mark(f"{node.name} joined", node.name)
        case NodeReady(node=name):
            return Mark(f"{name} is ready", name)
        case NodeLeft(node=name):
            lost = name in before.nodes and before.nodes[name].drain is None
            return Mark(f"{name} was lost" if lost else f"{name} left", name, fault=lost)
        case NodeDraining(node=name, grace=grace):
            given = "" if grace >= A_DAY else f": it has {grace:g} s for its unit"
            return Mark(f"{name} is leaving{given}", name)
        case NodeQuarantined(node=name, seconds=seconds, why=why):
            return Mark(f"{name} gets no units for {seconds:g} s: {why}", name, fault=True)
        case NodeReleased(node=name):
            return Mark(f"{name} gets units again", name)
        case NodeStalled(node=name, why=why):
            return Mark(f"{name} is stalled: {why}", name, fault=True)
        case NodeRecovered(node=name):
            return Mark(f"{name} has recovered", name)
        case UnitCommitted(visit=visit) if not visit.whole:
            batches = counted(visit.batches, "batch", "batches")
            return Mark(f"{visit.unit} was left by {visit.node} after {batches}", visit.node)
        case UnitsReused(visits=visits):
            return Mark(f"{event.config} took over {counted(len(visits), 'unit')} of run {visits[0].reused}")
        case UnitFailed(failure=failure):
            kind = "" if failure.kind is FailureKind.EXCEPTION else f", {failure.kind.value}"
            text = f"{failure.unit} failed on {failure.node}{kind}: {failure.story}"
            return Mark(text, failure.node, fault=True)
        case UnitWithdrawn(node=name, token=token) if (attempt := before.attempt(name, token)) is not None:
            return Mark(f"{attempt.unit} was withdrawn from {name}", name)
        case ConfigEnded(config=config, status=status, reason=reason):
            return Mark(f"{config} {status.value}: {reason}", fault=status is Status.FAILED)
        case ConfigResumed(config=config, reason=reason):
            return Mark(f"{config} is resumed: {reason}")
        case ConfigCreated(config=new) if new.parent and new.parent.config:
            parent = new.parent.config.partition(".")[0]
            return Mark(f"{new.seen_as} continues from {parent} with {hparams_text(new.hparams)}")
        case RunExtended(extension=extension):
            return Mark(_extended(extension))
        case StateRead() if before.plan is not None:
            return Mark("the history has a gap: the state was read afresh", fault=True)
    return None


def _extended(extension: Extension) -> str:
    by = f" by {extension.by}" if extension.by else ""
    more = extension.epochs > extension.epochs_before
    if extension.configs and not more and not extension.recipe_before:
        return f"{counted(len(extension.configs), 'failed config')} to be tried again{by}"
    length = f" to {extension.epochs} epochs" if more else ""
    return f"the run was extended{length}{by}: {counted(len(extension.configs), 'config')} to continue"
