"""The names of a run's keys (design, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_elastic.core.model.units import Unit

ROOT = "/cerebro/"

_SINGLE = frozenset({"spec", "event", "leader", "homes", "order", "outcome", "opening", "mended"})
_NAMED = frozenset(
    {
        *(
            "hosts",
            "nodes",
            "control",
            "children",
            "configs",
            "assign",
            "saving",
            "meeting",
            "quarantined",
            "quarantined_for",
        ),
        *("logged", "profiles", "visits"),
    }
)
"""The kinds of keys that there is one of, and of which there are several."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of one run."""

    run: str

    @property
    def prefix(self) -> str:
        return f"{ROOT}{self.run}/"

    @property
    def spec(self) -> str:
        return self.prefix + "spec"

    @property
    def event(self) -> str:
        return self.prefix + "event"

    @property
    def leader(self) -> str:
        return self.prefix + "leader"

    @property
    def homes(self) -> str:
        return self.prefix + "homes"

    @property
    def order(self) -> str:
        """The last ``Ordered``."""
        return self.prefix + "order"

    @property
    def outcome(self) -> str:
        return self.prefix + "outcome"

    @property
    def opening(self) -> str:
        """Held by the host that opens the run (``store/client/lock.py``)."""
        return self.prefix + "opening"

    @property
    def hosts(self) -> str:
        """What the keys of the hosts that take part begin with, each under its host's lease."""
        return self.prefix + "hosts/"

    def node(self, name: str) -> str:
        return f"{self.prefix}nodes/{name}"

    @property
    def control(self) -> str:
        """The last thing that a person asked of a config."""
        return self.prefix + "control/last"

    def children(self, config: str) -> str:
        """What the keys of a config's children begin with."""
        return f"{self.prefix}children/{config}/"

    def config(self, config: str) -> str:
        return f"{self.prefix}configs/{config}"

    def assign(self, node: str) -> str:
        return f"{self.prefix}assign/{node}"

    def saving(self, node: str) -> str:
        """What the node has trained and saves behind its next unit."""
        return f"{self.prefix}saving/{node}"

    def meeting(self, lead: str) -> str:
        """Where the ranks of the attempt that this node leads meet (``store/ledger/meetings.py``)."""
        return f"{self.prefix}meeting/{lead}"

    def quarantined(self, node: str) -> str:
        """Under a lease that is not kept: it ends with the time for which the node is set aside."""
        return f"{self.prefix}quarantined/{node}"

    def quarantined_for(self, node: str) -> str:
        """The last failure for which the node was set aside."""
        return f"{self.prefix}quarantined_for/{node}"

    @property
    def mended(self) -> str:
        """The last ``RecordMended``."""
        return self.prefix + "mended"

    def logged(self, config: str) -> str:
        """How many of the config's visits the loggers have that the leader writes to."""
        return f"{self.prefix}logged/{config}"

    def profile(self, config: str, attempt: int) -> str:
        return f"{self.prefix}profiles/{config}/{attempt:012d}"

    def visits(self, config: str, epoch: int | None = None) -> str:
        """What the keys of a config's visits begin with; of those of one ``epoch``, if it is given."""
        return f"{self.prefix}visits/{config}/" + ("" if epoch is None else f"{epoch:05d}/")

    def visit(self, unit: Unit, k: int) -> str:
        return f"{self.visits(unit.config, unit.epoch)}{k:05d}"

    def has_value(self, key: str) -> bool:
        """Whether it is a key of the run whose value says something; of others counts that they are there."""
        return key.startswith(self.prefix) and not key.startswith((self.hosts, self.opening))

    def is_known(self, key: str) -> bool:
        """Whether a run has such a key."""
        kind, rest = self.split(key)
        return kind in _NAMED if rest else kind in _SINGLE

    def split(self, key: str) -> tuple[str, str]:
        """The key's kind and what follows it: ("nodes", "a"), ("spec", "")."""
        kind, _, rest = key.removeprefix(self.prefix).partition("/")
        return kind, rest
