"""Whether a unit has changed something that all configs of this process share. It was put back as far as it
was seen. Only a fresh process is certain not to hand the rest to another config."""

from __future__ import annotations

_stories: list[str] = []


def spoil(story: str) -> None:
    """Note what was changed."""
    _stories.append(story)


def spoiled() -> bool:
    """Whether anything was."""
    return bool(_stories)
