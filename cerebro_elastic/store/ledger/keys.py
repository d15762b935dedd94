"""The names of a run's keys, what each holds, and which process writes it."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_elastic.core.model.units import Unit

ROOT = "/cerebro/"
"""The prefix of all runs."""

_SINGLE = frozenset({"spec", "event", "leader", "homes", "order", "outcome", "opening", "mended", "extended"})
"""The kinds of keys of which a run has one."""

_NAMED = frozenset(
    {
        "assign",
        "children",
        "configs",
        "control",
        "hosts",
        "logged",
        "meeting",
        "nodes",
        "profiles",
        "quarantined",
        "quarantined_for",
        "saving",
        "visits",
    }
)
"""The kinds of keys of which a run has one for each node, config, attempt or visit."""


_SECOND = "/second"
"""The end of a node's second key for assignments. (The name of a node has no slash.)"""


def node_of_assignment(rest: str) -> tuple[str, bool]:
    """The node of a key of the kind "assign", by what follows its kind (``Keys.split``); and whether it is
    the node's second."""
    return rest.removesuffix(_SECOND), rest.endswith(_SECOND)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one run. Values are versioned JSON (``core/model/codec.py``) where nothing else is said."""

    run: str

    @property
    def prefix(self) -> str:
        """The beginning of all keys of the run."""
        return f"{ROOT}{self.run}/"

    @property
    def spec(self) -> str:
        """``Spec``: plan, resolved recipe, digests of code and data. Written once, by the host that opens the
        run; again by ``cerebro run`` if the run goes on with changed code, and by ``cerebro extend``."""
        return self.prefix + "spec"

    @property
    def event(self) -> str:
        """The last event. Written with every transaction that changes the run; its watch is the history."""
        return self.prefix + "event"

    @property
    def leader(self) -> str:
        """The leader's name as text. Written by the controller that is elected, under its lease."""
        return self.prefix + "leader"

    @property
    def homes(self) -> str:
        """``HomesAssigned``: the home nodes of each partition. Written by the leader."""
        return self.prefix + "homes"

    @property
    def order(self) -> str:
        """``Ordered``: the last order of units that the policy's solver found. Written by the leader."""
        return self.prefix + "order"

    @property
    def outcome(self) -> str:
        """``RunEnded``: how the run has ended. Written by the leader; deleted when the run is extended."""
        return self.prefix + "outcome"

    @property
    def extended(self) -> str:
        """``RunExtended``: the last extension of the run. Written by an operator, who deletes ``outcome``."""
        return self.prefix + "extended"

    @property
    def opening(self) -> str:
        """``{}``: a lock (``store/client/lock.py``). Held by the host that opens the run, under its lease."""
        return self.prefix + "opening"

    @property
    def hosts(self) -> str:
        """The prefix of the hosts that take part, one key each: ``{"host": NAME}``, with ``"ended": true``
        from a host whose record says that the run has ended. Written by the host, under its lease."""
        return self.prefix + "hosts/"

    def node(self, name: str) -> str:
        """``Node``: host, capacity, ranks, devices, cached partitions, boot id. Written by the node's agent
        under its lease, by its ranks when they are ready, and by the operator that drains it."""
        return f"{self.prefix}nodes/{name}"

    @property
    def control(self) -> str:
        """The event of the last request for a config: stop, resume or clone. Written by operators."""
        return self.prefix + "control/last"

    def children(self, config: str) -> str:
        """The prefix of a config's children, one key each: ``Parent``, the checkpoint with which the child
        began. Written with the child."""
        return f"{self.prefix}children/{config}/"

    def config(self, config: str) -> str:
        """``Config``: hyper-parameters, status, epoch, visited partitions, head checkpoint, failures. Created
        by the leader or an operator; changed by them, and by workers that commit or fail."""
        return f"{self.prefix}configs/{config}"

    def assign(self, node: str, *, second: bool = False) -> str:
        """``Attempt``: what the node trains. Written by the leader; deleted by the worker when the attempt is
        trained, committed, failed or given up, or by the leader that withdraws it.

        A node has two such keys, used in turns: while it trains what one holds, the other may hold what is
        queued behind it."""
        return f"{self.prefix}assign/{node}{_SECOND if second else ''}"

    def saving(self, node: str) -> str:
        """``Attempt``: what the node has trained, and saves beside its next unit. Written by the worker when
        the attempt is trained; deleted as ``assign``."""
        return f"{self.prefix}saving/{node}"

    def meeting(self, lead: str) -> str:
        """``MeetingPlace``: where the ranks of the attempt that this node leads meet. Written by its rank 0
        (``store/ledger/meetings.py``)."""
        return f"{self.prefix}meeting/{lead}"

    def quarantined(self, node: str) -> str:
        """``NodeQuarantined``: the node gets no units. Written by the leader, under a lease that nobody
        renews: its end is that of the quarantine."""
        return f"{self.prefix}quarantined/{node}"

    def quarantined_for(self, node: str) -> str:
        """``NodeQuarantined``: the last failure for which the node was quarantined. Written by the leader;
        stays, so that each failure counts once."""
        return f"{self.prefix}quarantined_for/{node}"

    @property
    def mended(self) -> str:
        """``RecordMended``: the last repair of foreign changes. Written by the leader."""
        return self.prefix + "mended"

    def logged(self, config: str) -> str:
        """A number: how many of the config's visits the run's loggers have. Written by the leader."""
        return f"{self.prefix}logged/{config}"

    def profile(self, config: str, attempt: int) -> str:
        """``ProfileResult``: what one profiling of a strategy measured. Written by the worker."""
        return f"{self.prefix}profiles/{config}/{attempt:012d}"

    def visits(self, config: str, epoch: int | None = None) -> str:
        """The prefix of a config's visits, or of those of one ``epoch``."""
        return f"{self.prefix}visits/{config}/" + ("" if epoch is None else f"{epoch:05d}/")

    def visit(self, unit: Unit, k: int) -> str:
        """``Visit``: partition, nodes, attempt, input and output checkpoint, samples, seconds, metrics. The
        ``k``-th of its epoch. Written by the worker that commits it."""
        return f"{self.visits(unit.config, unit.epoch)}{k:05d}"

    def has_value(self, key: str) -> bool:
        """Whether a key of the run is signed; of the others only the existence counts."""
        return key.startswith(self.prefix) and not key.startswith((self.hosts, self.opening))

    def is_known(self, key: str) -> bool:
        """Whether the run's processes write such keys."""
        kind, rest = self.split(key)
        return kind in _NAMED if rest else kind in _SINGLE

    def split(self, key: str) -> tuple[str, str]:
        """The key's kind and what follows it: ("nodes", "a"), ("spec", "")."""
        kind, _, rest = key.removeprefix(self.prefix).partition("/")
        return kind, rest
