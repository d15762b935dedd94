"""How trackers name what they have of a run."""

from __future__ import annotations

from cerebro_elastic.extending.logging import ConfigEnd

TRACKED_AS = "cerebro-elastic"
"""What trackers call the experiment or project, unless the recipe or the environment gives another name."""


def config_tags(run: str, config: str, parent: str) -> dict[str, str]:
    """How a tracker names what it has of a config, by the names that all trackers use."""
    tags = {"cerebro.run": run, "cerebro.config": config}
    return {**tags, "cerebro.parent": parent} if parent else tags


def end_tags(end: ConfigEnd) -> dict[str, str]:
    """How a tracker notes a config's end."""
    return {
        "cerebro.status": end.status,
        "cerebro.reason": end.reason,
        "cerebro.checkpoint": end.checkpoint,
    }
