"""How does a unit end on its nodes? An attempt at it ends as a visit, a failure or a profile's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cerebro_elastic.core.model.units import CheckpointRef, Phase, RecordHead, Strategy, Unit


@dataclass(frozen=True, slots=True)
class Prefetch:
    """What a node will probably need next. It is a hint: the node may ignore it."""

    partition: int
    input: CheckpointRef | None = None
    """The checkpoint with which that unit begins."""
    replicas: tuple[int, ...] = ()
    """Further partitions assigned to the node that are, as far as is known, not in its cache. The node
    fetches one of them at a time."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a gang."""

    node: str
    registration: int
    """The registration under which it takes part (``Node.registration``)."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a unit, on one node or on a gang of several.

    A commit compares ``registration`` (of each member) and ``config_revision`` with the store, so that an
    attempt overtaken by other events cannot commit.
    """

    unit: Unit
    node: str
    """The node, or the gang's lead: rank 0 is on it."""
    registration: int
    """The registration of ``node`` under which it takes part."""
    config_revision: int
    """``Config.revision`` when the unit was assigned."""
    input: CheckpointRef | None = None
    """The checkpoint to begin with; ``None`` at the beginning of a config."""
    strategy: Strategy = Strategy()
    prefetch: Prefetch | None = None
    skip: int = 0
    """Batches of the partition that earlier visits have trained (see ``Visit.whole``)."""
    expected: float | None = None
    """The expected seconds of the unit; ``None`` if unknown."""
    token: int = 0
    """The fencing token: the store's revision at which the assignment was written."""
    gang: tuple[Member, ...] = ()
    """The gang's other nodes, in the order of their ranks."""
    hardware: str = "cpu"
    """The kind of all its nodes (``Node.hardware``)."""
    trained: int = 0
    """The store's revision at which the node reported that only the save remained; from then on the node may
    take its next unit (``State.saving``). 0 before, and for most attempts, whose node waits for their end."""
    last_visit_ended: float | None = None
    """When the run's last visit before the assignment ended: wall-clock seconds; ``None`` without one."""
    record: RecordHead | None = None
    """The head of the leader's record at the assignment. The unit's checkpoint repeats it, as evidence of the
    history before it."""
    queued_behind: int = 0
    """The token of the attempt that its node was training at the assignment, and behind which it was queued;
    0: the node was idle."""
    second_key: bool = False
    """The store has it under the node's second key for assignments: the attempt ahead uses the first."""
    freed: float = 0.0
    """When it was trained: wall-clock seconds; 0: not yet, or unknown."""

    @property
    def may_queue(self) -> bool:
        """Whether it may be assigned behind another attempt, and another behind it: one rank trains it. (The
        ranks of a group would have to agree on the next unit, and a profile measures memory.)"""
        return self.strategy.ranks == 1 and self.unit.phase is not Phase.PROFILE

    @property
    def members(self) -> tuple[Member, ...]:
        """All nodes of the attempt, the lead first."""
        return (Member(self.node, self.registration), *self.gang)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the ``members``."""
        return (self.node, *(member.node for member in self.gang))


@dataclass(frozen=True, slots=True)
class Resources:
    """A unit's use of its machine while it trained, measured on the leading rank. It is for people; no
    decision depends on it."""

    cpu: float = 0.0
    """CPU seconds of the rank and its loaders in each second: 1.5 keeps one and a half cores busy."""
    memory_bytes: int = 0
    """The most resident memory of the rank's process; loaders are not counted."""
    gpu_bytes: int = 0
    """The most memory that tensors had on the GPU."""
    gpu: float = 0.0
    """The share (0 to 1) of the time in which the GPU was at work, for whichever process; 0 also if that is
    not known."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A committed unit, or a committed part of one.

    A node that must leave in the middle of a unit commits its trained batches: a visit that is not ``whole``.
    The config's next visit continues the same unit after ``skip`` batches.
    """

    unit: Unit
    index_in_epoch: int
    """Its place among the config's visits of this epoch, from 0."""
    node: str
    """The node, or the gang's lead."""
    attempt: int
    """The token of the attempt."""
    input: CheckpointRef | None
    output: CheckpointRef
    """The checkpoint that it wrote; that of an evaluation is its ``input``."""
    samples: int
    batches: int
    """The number of batches, without those that were skipped."""
    seconds: float
    """Time in the task's training."""
    hop_seconds: float
    """Time of the load and the save around it."""
    started: float
    """Wall-clock seconds since the epoch, by the node's clock."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each logged metric."""
    strategy: Strategy = Strategy()
    log: str | None = None
    """The file of the logged rows; ``None`` without rows."""
    done: bool = False
    """The task itself ended the config's training (early stopping)."""
    skip: int = 0
    """Batches of the partition that earlier visits had trained."""
    whole: bool = True
    """The visit reached the end of the partition."""
    gang: tuple[str, ...] = ()
    """The gang's other nodes, in the order of their ranks."""
    hardware: str = "cpu"
    save_seconds: float = 0.0
    """Time of a save, or of the rest of one, that overlapped the node's next unit. It delays the config, not
    the node."""
    replicas: tuple[int, ...] = ()
    """The partitions of ``Prefetch.replicas`` that the node fetched during the visit."""
    fetch_seconds: float = 0.0
    """Time for which the node waited for the partition before it trained."""
    log_digest: str = ""
    cached: tuple[int, ...] | None = None
    """All training partitions in the node's cache after the training, if the cache is limited and drops some;
    ``None``: the earlier ones and those fetched since."""
    batches_made: int = 0
    """Batches that were made for it, those of validation included."""
    batches_shared: int = 0
    """Batches reused: the node's host had made them for other configs."""
    data_seconds: float = 0.0
    """Seconds for which its training waited for batches."""
    differing: str = ""
    """The maker of a row that differed from the run's kept one, as this visit saw; it ended the keeping."""
    resources: Resources = Resources()
    reused: str = ""
    """The id of the earlier run that made it, if any: nodes and times are of that run then, and ``attempt``
    is 0."""
    revision: int = 0
    """The revision of the commit; set only in the store, where a visit's lost key was restored."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that took part, the lead first."""
        return (self.node, *self.gang)

    @property
    def freed(self) -> float:
        """When its nodes became free for the next unit; wall-clock seconds."""
        return self.started + self.fetch_seconds + self.hop_seconds + self.seconds

    @property
    def ended(self) -> float:
        """When its config became free for the next unit; wall-clock seconds."""
        return self.freed + self.save_seconds


class FailureKind(StrEnum):
    """Why an attempt did not commit although its node is still registered."""

    EXCEPTION = "exception"
    OUT_OF_MEMORY = "out-of-memory"
    CRASH = "crash"
    HANG = "hang"
    NOT_FINITE = "not-finite"
    DISK_FULL = "disk-full"
    STORAGE = "storage"
    DAMAGED_DATA = "damaged-data"

    @property
    def of_node(self) -> bool:
        """A fault of the node, or of its reads and writes: it does not count against the unit's tries."""
        return self.lasting or self is FailureKind.DAMAGED_DATA

    @property
    def lasting(self) -> bool:
        """A fault that the node's next unit would meet, too: the node is quarantined at once. (Damaged data
        are checked before the next use, and fetched again.)"""
        return self in (FailureKind.DISK_FULL, FailureKind.STORAGE)

    @property
    def of_config(self) -> bool:
        """A fault that every node would have, by purity: another try is in vain, and no node is to blame."""
        return self is FailureKind.NOT_FINITE


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed on a node that is alive."""

    unit: Unit
    node: str
    """The node that failed, of all nodes of the attempt."""
    attempt: int
    """The token of the attempt."""
    kind: FailureKind
    story: str
    """An explanation for people."""
    strategy: Strategy = Strategy()
    hardware: str = "cpu"
    place: str = ""
    """The exception's type and line, by which equal errors are recognized; "" if it has none."""

    @classmethod
    def of(cls, attempt: Attempt, node: str, kind: FailureKind, story: str, place: str = "") -> Failure:
        unit, strategy, hardware = attempt.unit, attempt.strategy, attempt.hardware
        return cls(unit, node, attempt.token, kind, story, strategy, hardware, place)


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """A profile's measurements of a strategy, for a config on a kind of node."""

    unit: Unit
    """The unit whose first batches were trained; its phase is ``PROFILE``."""
    strategy: Strategy
    hardware: str
    """The kind of node."""
    node: str
    """The attempt's node, or the lead of its gang."""
    attempt: int
    """The token of the attempt."""
    seconds: float = 0.0
    """Expected seconds of a whole unit."""
    bytes: int = 0
    """The highest number of bytes that a rank had in use."""
    refusal: str | None = None
    """Why the strategy is not feasible, or that memory did not suffice; ``None`` if it is feasible."""

    @classmethod
    def of(
        cls, attempt: Attempt, *, seconds: float = 0.0, bytes: int = 0, refusal: str | None = None
    ) -> ProfileResult:
        strategy, hardware = attempt.strategy, attempt.hardware
        return cls(attempt.unit, strategy, hardware, attempt.node, attempt.token, seconds, bytes, refusal)
