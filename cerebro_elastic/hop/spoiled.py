"""Whether a unit has changed something that all configs of this process share. It was put back as far as it
was seen. Only a fresh process is certain not to hand the rest to another config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cerebro_elastic.errors import TaskError

_stories: list[str] = []


def spoil(story: str) -> None:
    """Note the change."""
    _stories.append(story)


@contextmanager
def spoiling() -> Iterator[None]:
    """A refusal within the block spoils the process: a model that it keeps would not make its settings again,
    so the next try of the unit would train without them."""
    try:
        yield
    except TaskError as error:
        spoil(str(error))
        raise


def spoiled() -> bool:
    """Whether anything was."""
    return bool(_stories)
