"""Bytes moved: Table 2 of the paper, and the traffic in a history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cerebro_elastic.core.history.derived import add_usage
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.state import Usage
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.reporting.traffic import communication_costs, data_text, summarize_traffic

GB, TB, PB = 10**9, 10**12, 10**15


def visit(config: str, epoch: int, partition: int, size: int, batches: int) -> Visit:
    output = CheckpointRef("", "", size)
    return Visit(Unit(config, epoch, partition), partition, "n", 1, None, output, 1, batches, 1.0, 0.0, 0.0)


def viewed(*visits: Visit) -> RunView:
    """A run of one config with these visits."""
    view = RunView()
    view.log, view.visits = list(visits), {"c": list(visits)}
    return view


def test_the_papers_example() -> None:
    """Section 3.2, Table 2: k = 20, |S| = 20, p = 10, m = 1 GB, <D> = 1 TB, |D|/b = 100 K."""
    visits = {
        f"c{i}": [visit(f"c{i}", epoch, j, GB, 10_000) for epoch in range(20) for j in range(10)]
        for i in range(20)
    }
    assert [cost.bytes for cost in communication_costs(visits, TB, workers=10)] == [
        4 * TB + 20 * GB,
        10 * TB + 20 * GB,
        400 * TB + 20 * GB,
        8 * TB,
        80 * PB,
        40 * PB,
    ]


def test_the_traffic_is_computed_from_a_history(past: Any, manifest: Manifest) -> None:
    view = RunView(past.events)
    view.nodes["node-2"] = replace(view.nodes["node-2"], host=view.nodes["node-0"].host)
    summary = summarize_traffic(view, manifest)
    assert (summary.hops, summary.stays) == (5, 2)
    assert (summary.hopped, summary.written) == (5 * 1000, 10 * 1000)
    assert (summary.dataset, summary.read) == (200_000, 300_000), "nodes of one host share what they read"


def test_a_partition_that_a_cache_had_dropped_was_read_again(manifest: Manifest) -> None:
    limited = [replace(visit("c", at // 2, at % 2, 1, 1), cached=(at % 2,), attempt=at) for at in range(4)]
    summary = summarize_traffic(viewed(*limited), manifest)
    assert (summary.read, summary.limited) == (400_000, True)
    roomy = [replace(each, cached=(0, 1)) for each in limited]
    assert summarize_traffic(viewed(*roomy), manifest).read == 200_000
    assert not summarize_traffic(viewed(replace(limited[0], cached=None)), manifest).limited


def test_a_row_that_differs_from_the_kept_one_is_said_with_what_was_trained_before() -> None:
    one = replace(visit("c", 0, 0, 1, 1), batches_made=2)
    seen = replace(visit("d", 0, 0, 1, 1), batches_made=2, differing="`decode` has made another row")
    text = data_text(add_usage(add_usage(Usage(), one), seen))
    assert "`decode` has made another row: seen in" in text
    assert "1 unit before it may have trained on rows that were kept" in text
