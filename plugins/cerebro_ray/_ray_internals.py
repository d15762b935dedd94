"""Private names of Ray. Tested with Ray 2.60. Outside Ray Train, Ray has no public name for the machines that
it is about to lose."""

from __future__ import annotations

from collections.abc import Mapping

from ray._private.state import state


def draining_nodes() -> Mapping[str, int]:
    """The machines that Ray drains, by the hexadecimal id, with the deadline in Unix milliseconds; 0: none.
    Spot notices, idle machines and `ray drain-node` lead to it."""
    nodes: Mapping[str, int] = state.get_draining_nodes()
    return nodes
