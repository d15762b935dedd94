"""Whether a unit has changed something in this process that can be neither carried nor put back. Only a fresh
process can train the next unit: another config would begin with the change, and fail in place of the one that
made it."""

from __future__ import annotations

_stories: list[str] = []


def spoil(story: str) -> None:
    """Note what was changed."""
    _stories.append(story)


def spoiled() -> bool:
    """Whether anything was."""
    return bool(_stories)
