"""The tags of trackers for a run and its configs."""

from __future__ import annotations

from cerebro_elastic.extending.logging import ConfigEnd

TRACKED_AS = "cerebro-elastic"
"""The trackers' name for the experiment or project, unless the recipe or the environment gives another."""


def config_tags(run: str, config: str, parent: str) -> dict[str, str]:
    """A tracker's tags for a config, under the names that all trackers use."""
    tags = {"cerebro.run": run, "cerebro.config": config}
    return {**tags, "cerebro.parent": parent} if parent else tags


def end_tags(end: ConfigEnd) -> dict[str, str]:
    """A tracker's tags for a config's end."""
    return {
        "cerebro.status": end.status,
        "cerebro.reason": end.reason,
        "cerebro.checkpoint": end.checkpoint,
    }
