"""The frozen values of a run, in the words of the design. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

HParams: TypeAlias = Mapping[str, Any]
"""Hyper-parameters: names to JSON values."""

Order: TypeAlias = tuple[tuple[str, str, int, int], ...]
"""In which order training units shall begin: (node, config, epoch, partition) of each."""


class Phase(StrEnum):
    """What a unit does with its partition. A trial trains a few of its batches, to see how a choice does:
    nothing is saved, and the config does not advance."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PROFILE = "profile"

    @classmethod
    def _missing_(cls, value: object) -> Phase | None:
        """Records of version 0.1 call it a trial."""
        return cls.PROFILE if value == "trial" else None


class Status(StrEnum):
    """Where a config stands. Only a LIVE config gets units."""

    LIVE = "live"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why an attempt did not commit although its node is still there."""

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
        """Trouble of the node, or of what it reads and writes: it does not count against the unit's tries."""
        return self.lasting or self is FailureKind.DAMAGED_DATA

    @property
    def lasting(self) -> bool:
        """Trouble that the node's next unit would meet, too: the node is put aside at once. Damaged data are
        checked, and fetched again if they must be, by whoever needs them next."""
        return self in (FailureKind.DISK_FULL, FailureKind.STORAGE)

    @property
    def of_config(self) -> bool:
        """Trouble that by purity every node would have: another try is in vain, and no node is to blame."""
        return self is FailureKind.NOT_FINITE


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a unit is trained: by which parallelism (with its ``options``), on how many ranks of how many
    nodes. ``ranks`` counts those of all ``nodes`` together."""

    parallelism: str = "single"
    ranks: int = 1
    nodes: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.parallelism, self.ranks, self.nodes))

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """For people: "single", "ddp x2", "fsdp x2 over 2 nodes", "deepspeed x2 stage=3"."""
        ranks = f" x{self.ranks}" if self.ranks > 1 else ""
        options = "".join(f" {name}={value}" for name, value in sorted(self.options.items()))
        nodes = f" over {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.parallelism}{ranks}{options}{nodes}"


class Progress(StrEnum):
    """Whether a node that may choose takes the config with most epochs left: always, where the run ends no
    later for it, or never."""

    EVEN = "even"
    AFFORDABLE = "affordable"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Plan:
    """What never changes in a run.

    ``partitions`` is p; ``evaluations`` the number of validation partitions that are evaluated by
    units of their own (0: validation belongs to the epoch's last unit); the run waits for
    ``min_nodes`` before its first unit and uses at most ``max_nodes``; a unit is tried ``tries``
    times. ``strategies`` are those that a unit may be trained by, the preferred one first: if they are several,
    trials tell which is the fastest for a config. ``start`` is the checkpoint from outside the run with which
    the search's configs begin, if there is one. Each partition is at home on ``replicas`` nodes, or on all if
    there are fewer; ``on_demand``: a node that would be idle else may fetch one that is at home elsewhere.
    ``progress``: whether configs are kept within an epoch of each other.
    """

    run: str
    partitions: int
    epochs: int
    evaluations: int = 0
    min_nodes: int = 1
    max_nodes: int = 1
    tries: int = 3
    seed: int = 0
    strategies: tuple[Strategy, ...] = (Strategy(),)
    start: Parent | None = None
    replicas: int = 1
    on_demand: bool = False
    progress: Progress = Progress.FREE


@dataclass(frozen=True, slots=True)
class Spec:
    """What a run is made from, written once: the plan, the resolved recipe (what it takes from other runs is
    written out) and the digest of the recipe as it was given, the URL of the prepared data and its digest,
    the folder from which users' modules are imported and the digest of each of its files that are (``code``:
    the only thing that a start of the run again may change), the URL of checkpoints and logs, and the version
    of this package."""

    plan: Plan
    recipe: Mapping[str, Any]
    recipe_digest: str
    data: str
    data_digest: str
    root: str
    code: Mapping[str, str]
    storage: str
    version: str


@dataclass(frozen=True, slots=True)
class Basis:
    """What a ``run`` is made from, by digests (``core/model/origin.py``): its ``spec`` but for the code, and the
    users' ``code``, which may be another when the run is started again."""

    run: str
    spec: str
    code: str


@dataclass(frozen=True, slots=True)
class Unit:
    """One sub-epoch: a config's pass over one partition. ``epoch`` and ``partition`` count from 0."""

    config: str
    epoch: int
    partition: int
    phase: Phase = Phase.TRAIN


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A config's state at rest: where it is, the digest of its content, its size."""

    url: str
    digest: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Stall:
    """That a node shows no sign of life but its lease: ``since`` when, by its agent's wall clock, and ``why``
    its agent thinks so. Both are for people."""

    since: float
    why: str


@dataclass(frozen=True, slots=True)
class Node:
    """A registered node. ``registration`` is the store's revision at which the registration was
    made: a node that comes back under its old name has a higher one. ``drain`` is set when it has been
    asked to leave: the seconds that it was given; it gets no more units. ``cached`` are the training
    partitions that it held when its ranks were ready; in a state, also those that it has trained on since.
    ``hardware`` names the kind of node that it is: on nodes of one kind a choice takes the same time and
    memory. It is ``starting`` until its ranks are ready, which takes seconds, and ``stalled`` while they show
    no sign of life: it gets no more units then."""

    name: str
    host: str
    ranks: int = 1
    devices: tuple[str, ...] = ("cpu",)
    cached: tuple[int, ...] = ()
    address: str = ""
    boot: str = ""
    version: str = ""
    registration: int = 0
    drain: float | None = None
    hardware: str = "cpu"
    starting: bool = False
    stalled: Stall | None = None


@dataclass(frozen=True, slots=True)
class RecordHead:
    """Where a record of the run's history ended: the ``revision`` of its last line, and the digest that is
    chained over this line and all before it (``store/ledger/journal.py``)."""

    revision: int
    digest: str


@dataclass(frozen=True, slots=True)
class Prefetch:
    """What a node will probably need next: a hint, never an obligation. ``replicas`` are the other partitions
    that are at home on it and, as far as is known, not in its cache: it gets one of them at a time."""

    partition: int
    input: CheckpointRef | None = None
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A further node of a gang, and the registration under which it takes part."""

    node: str
    registration: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a unit on one node, or on a gang of them: ``node``, which leads (rank 0 is its), and the
    others in ``gang``, in the order of their ranks. ``hardware`` is their kind of node.

    ``token`` is the fencing token: the store's revision at which the assignment was written.
    ``registration`` and ``config_revision`` are what the commit compares (design, section 5).
    ``skip`` is how many batches of the partition earlier visits have trained (see ``Visit.whole``);
    ``expected`` the seconds that the unit will probably take, if that is known. ``trained`` is the store's
    revision at which its node told that only the save is left, which goes on behind the node's next unit
    (``State.saving``); 0 until then, and for most attempts, whose node waits for their end. ``since`` is when
    the last visit before the assignment had ended, by the nodes' wall clocks; ``None`` if there was none.
    ``record`` is where the record of whoever leads ended when it assigned the unit: the unit's checkpoint
    bears it, and so bears witness to the history before it.
    """

    unit: Unit
    node: str
    registration: int
    config_revision: int
    input: CheckpointRef | None = None
    strategy: Strategy = Strategy()
    prefetch: Prefetch | None = None
    skip: int = 0
    expected: float | None = None
    token: int = 0
    gang: tuple[Member, ...] = ()
    hardware: str = "cpu"
    trained: int = 0
    since: float | None = None
    record: RecordHead | None = None

    @property
    def members(self) -> tuple[Member, ...]:
        """All nodes of the attempt, the lead first."""
        return (Member(self.node, self.registration), *self.gang)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(member.node for member in self.members)


@dataclass(frozen=True, slots=True)
class Visit:
    """A committed unit. ``k`` is its place in the epoch's order of visits, from 0.

    A node that has to leave in the middle of a unit commits what it has done of it, up to a batch
    boundary: a visit that is not ``whole``. The next visit of the config takes up the same unit after
    ``skip`` batches. ``seconds`` is time in the task's training, ``hop_seconds`` the load and save around it,
    ``fetch_seconds`` what it waited before for its partition, if the host did not have that: the node's time.
    ``save_seconds`` is that of a save, or the rest of one, behind the node's next unit: the
    config's time alone. ``started`` is wall-clock time, for people. ``done`` says that the task itself ended
    the config's training (early stopping).

    ``node`` is the one that led, ``gang`` the others; ``hardware`` is their kind of node. ``replicas`` are
    those of the attempt's hint that the node has got meanwhile (``Prefetch.replicas``). ``log`` is the file
    of the rows that were logged, if there were any, and ``log_digest`` its sha256. ``revision`` is only set
    in the store, where the visit's key was put back: that of its commit.
    """

    unit: Unit
    k: int
    node: str
    attempt: int
    input: CheckpointRef | None
    output: CheckpointRef
    samples: int
    batches: int
    seconds: float
    hop_seconds: float
    started: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    strategy: Strategy = Strategy()
    log: str | None = None
    done: bool = False
    skip: int = 0
    whole: bool = True
    gang: tuple[str, ...] = ()
    hardware: str = "cpu"
    save_seconds: float = 0.0
    replicas: tuple[int, ...] = ()
    fetch_seconds: float = 0.0
    log_digest: str = ""
    revision: int = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that took part, the lead first."""
        return (self.node, *self.gang)

    @property
    def freed(self) -> float:
        """When its nodes were done with it, but perhaps for its save; wall-clock time."""
        return self.started + self.fetch_seconds + self.hop_seconds + self.seconds

    @property
    def ended(self) -> float:
        """When its config was done with it."""
        return self.freed + self.save_seconds


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt's failure, with its story for people: ``node`` is the one of its nodes that failed.
    ``strategy`` is what the unit was to be trained by, ``hardware`` the attempt's. ``place`` is the exception's
    type and line, if that tells one error from another."""

    unit: Unit
    node: str
    attempt: int
    kind: FailureKind
    story: str
    strategy: Strategy = Strategy()
    hardware: str = "cpu"
    place: str = ""


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """How a choice did for a config on a kind of node (``hardware``): the ``seconds`` that a whole unit is
    expected to take and the highest number of ``bytes`` that a rank had in use; or why it is refused: it is
    not feasible, or there was not memory enough. ``node`` led ``attempt``, in which it was tried."""

    unit: Unit
    strategy: Strategy
    hardware: str
    node: str
    attempt: int
    seconds: float = 0.0
    bytes: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class PartialUnit:
    """A partition of which some ``batches`` are trained, and the rest is not."""

    partition: int
    batches: int


BY_HAND: Mapping[str, str] = {"by": "hand"}
"""The origin of a config that a person has created."""


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a config's chain of checkpoints begins: with ``checkpoint`` of another ``config``, which has come
    to ``epoch`` and in it has done the partitions ``visited`` and some batches of the one that is ``partial_unit``.
    The checkpoint is shared, not copied: it is a visit's of ``owner``, which is ``config`` or an ancestor of
    it. Both are empty for a checkpoint from outside the run. ``hparams`` are those with which it was made."""

    config: str
    checkpoint: CheckpointRef
    epoch: int
    owner: str
    visited: tuple[int, ...] = ()
    partial_unit: PartialUnit | None = None
    hparams: HParams = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """One training configuration and how far it has come.

    ``visited`` and ``evaluated`` are the partitions of the present epoch that are done, in order;
    ``partial_unit`` is the one that a visit left before its end, ``parts`` the number of such visits in this
    epoch; ``head`` is the checkpoint of its last visit; ``metrics`` those of its last full epoch,
    ``pending`` those of the present one so far (``weighted``: sums over ``samples`` of its evaluate
    units); ``revision`` is the store's revision of this value: every commit compares it.

    ``parent`` is the lineage edge of one that goes on from another's checkpoint; ``origin`` is what the
    search noted when it proposed the config, ``BY_HAND`` for a person's; ``by_hand`` says that a person has
    created, stopped or resumed it, so that the search leaves it as it is.
    """

    id: str
    hparams: HParams
    status: Status = Status.LIVE
    epoch: int = 0
    visited: tuple[int, ...] = ()
    evaluated: tuple[int, ...] = ()
    head: CheckpointRef | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    pending: Mapping[str, float] = field(default_factory=dict)
    weighted: Mapping[str, float] = field(default_factory=dict)
    samples: int = 0
    partial_unit: PartialUnit | None = None
    parts: int = 0
    failures: tuple[Failure, ...] = ()
    reason: str = ""
    parent: Parent | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    by_hand: bool = False
    revision: int = 0
