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
    """In a ``State``: the token of the last attempt whose visit reported the whole cache; 0: none did."""
    address: str = ""
    """The address at which other nodes reach this one."""
    boot: str = ""
    """An id of the machine's present boot."""
    version: str = ""
    """The version of cerebro-elastic that the node runs."""
    registration: int = 0
    """The store's revision at which the node registered. A node that comes back under its old name has a
    higher one."""
    drain: float | None = None
    """The seconds in which the node must leave. Once this is set, it gets no more units."""
    hardware: str = "cpu"
    """The kind of machine. A strategy takes the same time and memory on all nodes of one kind."""
    starting: bool = False
    """The ranks are not ready yet, which takes seconds."""
    stalled: Stall | None = None
    """Set while the ranks show no sign of life. Until then the node gets no units."""
    joined: float = 0.0
    """When the node registered: wall-clock seconds, by its own clock. 0: unknown, and the node costs
    nothing."""
    price: float | None = None
    """The price of an hour of the node; ``None``: the recipe's."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A time in which a node was registered and must be paid."""

    node: str
    joined: float
    """``Node.joined``."""
    price: float | None = None
    """``Node.price``."""
    left: float | None = None
    """When the node left, according to visits: wall-clock seconds. ``None``: it is present, or no leader has
    noticed its end yet."""
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
