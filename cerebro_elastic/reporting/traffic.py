"""Bytes that a run moved, against what other ways to train the same configs would move.

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

Configs differ in size, batch size and number of epochs, so the sums that the products stand for are taken
over the visits: ``k p |S|`` is their number, ``m`` the size of each one's state, ``ceil(|D|/bp)`` its
batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.manifest import Manifest, PartitionFiles


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train the configs, its formula in Table 2, and the bytes that it moves."""

    name: str
    formula: str
    bytes: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was measured: hops (states that another node trained on), how many visits went on where the one
    before had ended, bytes of states hopped and written, bytes of partitions read from their source, and of
    the whole dataset (``None`` if it is out of reach); then Table 2 for all ways, the run's own first."""

    hops: int
    stays: int
    hopped: int
    written: int
    read: int | None
    dataset: int | None
    ways: Sequence[Way]


def traffic(
    visits: Mapping[str, Sequence[Visit]], manifest: Manifest | None, hosts: Mapping[str, str]
) -> Traffic:
    """The traffic of a run with these visits by config. ``hosts`` has each node's host: its nodes share one
    cache of partitions."""
    trained = [v for row in visits.values() for v in row if v.unit.phase is Phase.TRAIN]
    steps = [pair for row in visits.values() for pair in pairwise(row)]
    hops = [after for before, after in steps if before.node != after.node]
    dataset = None if manifest is None else sum(map(_bytes, manifest.train))
    return Traffic(
        hops=len(hops),
        stays=len(steps) - len(hops),
        hopped=sum(v.input.bytes for v in hops if v.input is not None),
        written=sum(v.output.bytes for v in trained),
        read=None if manifest is None else _read(trained, manifest, hosts),
        dataset=dataset,
        ways=ways(visits, dataset, len({v.node for v in trained})),
    )


def ways(visits: Mapping[str, Sequence[Visit]], dataset: int | None, workers: int) -> list[Way]:
    """Table 2 for these visits. What copies data is left out if the dataset's size is not known."""
    trained = [v for row in visits.values() for v in row if v.unit.phase is Phase.TRAIN]
    states = sum(v.output.bytes for v in trained)
    final = sum(row[-1].output.bytes for row in visits.values() if row)
    exchanges = sum(v.output.bytes * v.batches for v in trained)
    epochs = sum(len({v.unit.epoch for v in row}) for row in visits.values())
    found = [Way("Model Hopper Parallelism", "k·m·p·|S| + m·|S|", states + final)]
    if dataset is not None:
        found += [
            Way("Task parallelism, full copies", "p·⟨D⟩ + m·|S|", workers * dataset + final),
            Way("Task parallelism, remote reads", "k·|S|·⟨D⟩ + m·|S|", epochs * dataset + final),
        ]
    return [
        *found,
        Way("Bulk synchronous", "2·k·m·p·|S|", 2 * states),
        Way("Centralized fine-grained", "2·k·m·p·|S|·⌈|D|/bp⌉", 2 * exchanges),
        Way("Decentralized fine-grained", "k·m·p·|S|·⌈|D|/bp⌉", exchanges),
    ]


def _bytes(partition: PartitionFiles) -> int:
    return sum(file.bytes for file in partition.files)


def _read(trained: Sequence[Visit], manifest: Manifest, hosts: Mapping[str, str]) -> int:
    """Each host reads a partition once, also one that it has not trained on yet."""
    read = {(hosts.get(node, node), v.unit.partition) for v in trained for node in v.nodes}
    read |= {(hosts.get(v.node, v.node), j) for v in trained for j in v.replicas}
    return sum(_bytes(manifest.train[partition]) for _, partition in read)
