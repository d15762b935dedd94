"""The bytes moved by a run, compared with other methods of training the same configs.

The formulas are those of the Cerebro paper (Nakandala et al., VLDB 2020), section 3.2 and Table 2, for ``k``
epochs of ``|S|`` configs of ``m`` bytes on ``p`` workers, over a dataset ``D`` in batches of ``b`` rows:

==============================  =========================
Model Hopper Parallelism        k m p |S| + m |S|
task parallelism, full copies   p <D> + m |S|
task parallelism, remote reads  k |S| <D> + m |S|
bulk synchronous                2 k m p |S|
centralized fine-grained        2 k m p |S| ceil(|D|/bp)
decentralized fine-grained      k m p |S| ceil(|D|/bp)
==============================  =========================

Configs differ in size, batch size and number of epochs, so the sums behind the products are taken over the
visits: ``k p |S|`` is their number, ``m`` the size of each one's state, ``ceil(|D|/bp)`` its batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.state import Usage
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.manifest import Manifest


@dataclass(frozen=True, slots=True)
class CommunicationCost:
    """The cost of one method of training the configs: a row of Table 2."""

    name: str
    formula: str
    bytes: float
    """The bytes moved over the network."""


@dataclass(frozen=True, slots=True)
class TrafficSummary:
    """The bytes moved by a run, and those that other methods would have moved."""

    hops: int
    """The number of visits that trained a state written by another node."""
    stays: int
    """The number of visits that trained a state on the node that had written it."""
    hopped: int
    """Bytes of the states that hopped."""
    written: int
    """Bytes of all states that were written."""
    read: int | None
    """Bytes of the partitions read from their source; ``None`` if ``dataset`` is."""
    limited: bool
    """Whether caches were limited, so that they dropped partitions."""
    dataset: int | None
    """Bytes of the training rows; ``None`` without the manifest, or if they stay in a user's dataset."""
    indexed: bool
    """Whether the rows stay in a user's dataset."""
    data: str
    """The run's use of the data (``data_text``)."""
    communication: Sequence[CommunicationCost]
    """Table 2 for this run: Model Hopper Parallelism first."""


def summarize_traffic(view: RunView, manifest: Manifest | None) -> TrafficSummary:
    """Sum up the bytes moved by a run; ``manifest`` is that of its dataset, if it can be read."""
    trained = [visit for visit in view.trained if visit.unit.phase is Phase.TRAIN]
    visits = {name: [visit for visit in row if not visit.reused] for name, row in view.visits.items()}
    steps = [pair for row in visits.values() for pair in pairwise(row)]
    hops = [after for before, after in steps if before.node != after.node]
    dataset = None if manifest is None else manifest.training_bytes
    return TrafficSummary(
        hops=len(hops),
        stays=len(steps) - len(hops),
        hopped=sum(v.input.hopping_bytes for v in hops if v.input is not None),
        written=sum(v.output.hopping_bytes for v in trained),
        read=None if manifest is None or dataset is None else _read(trained, manifest, view.nodes),
        limited=any(v.cached is not None for v in trained),
        dataset=dataset,
        indexed=manifest is not None and bool(manifest.datasets),
        data=data_text(view.state.usage),
        communication=communication_costs(visits, dataset, len({v.node for v in trained})),
    )


def data_text(usage: Usage) -> str:
    """The number of batches made, the number reused by other configs, and the share of its time for which
    training waited. Empty before the first batch."""
    made, shared = usage.batches_made, usage.batches_shared
    if not made + shared:
        return ""
    seconds = sum(config.seconds for config in usage.configs.values())
    share = usage.data_seconds / seconds if seconds else 0.0
    more = f"; {usage.differing}" if usage.differing else ""
    return f"made {made:,} batches, shared {shared:,}; training waited for them {share:.0%} of its time{more}"


def communication_costs(
    visits: Mapping[str, Sequence[Visit]],
    dataset: int | None,
    workers: int,
    *,
    share: float = 1.0,
    of_configs: float = 1.0,
) -> list[CommunicationCost]:
    """Table 2 for these visits, on ``workers`` nodes; they are this ``share`` of the run's, and those of this
    share ``of_configs``. Methods that copy data are left out if the size of the ``dataset`` in bytes is
    unknown."""
    trained = [v for row in visits.values() for v in row if v.unit.phase is Phase.TRAIN]
    states = sum(v.output.hopping_bytes for v in trained) / share
    final = sum(row[-1].output.hopping_bytes for row in visits.values() if row) / of_configs
    exchanges = sum(v.output.hopping_bytes * v.batches for v in trained) / share
    epochs = sum(len({v.unit.epoch for v in row}) for row in visits.values()) / share
    costs = [CommunicationCost("Model Hopper Parallelism", "k·m·p·|S| + m·|S|", states + final)]
    if dataset is not None:
        costs += [
            CommunicationCost("Task parallelism, full copies", "p·⟨D⟩ + m·|S|", workers * dataset + final),
            CommunicationCost(
                "Task parallelism, remote reads", "k·|S|·⟨D⟩ + m·|S|", epochs * dataset + final
            ),
        ]
    return [
        *costs,
        CommunicationCost("Bulk synchronous", "2·k·m·p·|S|", 2 * states),
        CommunicationCost("Centralized fine-grained", "2·k·m·p·|S|·⌈|D|/bp⌉", 2 * exchanges),
        CommunicationCost("Decentralized fine-grained", "k·m·p·|S|·⌈|D|/bp⌉", exchanges),
    ]


def _read(trained: Sequence[Visit], manifest: Manifest, nodes: Mapping[str, Node]) -> int:
    """Bytes read from the source: each host, whose nodes share a cache, reads a partition once, even if it is
    only prefetched, and again after its cache dropped it."""
    cached: dict[str, set[int]] = {}
    read = 0
    for visit in sorted(trained, key=lambda visit: visit.attempt):
        for node in visit.nodes:
            host = nodes[node].host if node in nodes else node
            before, leads = cached.get(host, set()), node == visit.node
            after = {visit.unit.partition, *(visit.replicas if leads else ())}
            if leads and visit.cached is not None:
                after.update(visit.cached)
                cached[host] = after
            else:
                cached[host] = before | after
            read += sum(manifest.train[partition].bytes for partition in after - before)
    return read
