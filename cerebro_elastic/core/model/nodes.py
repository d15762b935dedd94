"""What is a node? The machines' part of a run's values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stall:
    """A node shows no sign of life except its lease. Both fields are for people."""

    began: float
    """Wall-clock seconds since the epoch, by the clock of the node's agent."""
    why: str
    """The agent's reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """A registered node: one torchrun agent and its ranks."""

    name: str
    """Unique among the registered nodes. A node may come back under its old name."""
    host: str
    """The machine. Its nodes share one cache of partitions."""
    ranks: int = 1
    devices: tuple[str, ...] = ("cpu",)
    """The devices of the ranks, as torch names them."""
    cached: tuple[int, ...] = ()
    """Training partitions in the cache when the ranks became ready; in a ``State``, also those that the node
    has trained on or fetched since, without those that its cache has dropped."""
    cached_as_of: int = 0
    """In a ``State``: the token of the last attempt whose visit said what all of the cache was; 0: none
    has."""
    address: str = ""
    """Where other nodes reach this one."""
    boot: str = ""
    """An id of the machine's present boot."""
    version: str = ""
    """The version of cerebro-elastic that the node runs."""
    registration: int = 0
    """The store's revision at which the node registered. A node that comes back under its old name has a
    higher one."""
    drain: float | None = None
    """Seconds that the node was given to leave. It gets no more units once this is set."""
    hardware: str = "cpu"
    """The kind of machine. A strategy takes the same time and memory on all nodes of one kind."""
    starting: bool = False
    """The ranks are not ready yet, which takes seconds."""
    stalled: Stall | None = None
    """Set while the ranks show no sign of life. The node gets no units meanwhile."""
    joined: float = 0.0
    """When the node registered: wall-clock seconds, by its own clock. 0: unknown, and the node costs
    nothing."""
    price: float | None = None
    """What an hour of the node costs; ``None``: what the recipe says."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A time in which a node was registered, which is to be paid."""

    node: str
    joined: float
    """``Node.joined``."""
    price: float | None = None
    """``Node.price``."""
    left: float | None = None
    """When the node left, as far as visits say: wall-clock seconds. ``None``: it is present, or no leader has
    noticed yet."""
    revision: int = 0
    """The revision of its last change."""

    @property
    def name(self) -> str:
        """Unique in the run."""
        return f"{self.node}/{self.joined:.3f}"

    @classmethod
    def of(cls, node: Node, revision: int = 0) -> Stay:
        """The stay that begins when the node registers."""
        return cls(node.name, node.joined, node.price, revision=revision)
