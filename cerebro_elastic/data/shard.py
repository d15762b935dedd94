"""A shard: a file of rows that somebody else has written and that is read where it lies. It must stay as it
was when the run was opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Identity, identities, identity, locate, redacted


@dataclass(frozen=True, slots=True)
class Shard:
    """A file of rows."""

    url: str
    bytes: int
    tag: str
    """The storage's mark of its content: the ETag, else the time of its last change."""
    rows: int
    """0: they are counted when a host fetches it."""
    elsewhere: int = 0
    """The bytes of the files that this one names, if its rows are in these."""


def check_shards(shards: Sequence[Shard]) -> None:
    """Raise ``DataError`` unless each shard is as it was when the run was opened. One request for each folder
    of shards."""
    if problem := next(changed_shards(shards), None):
        raise DataError(problem)


def changed_shards(shards: Sequence[Shard]) -> Iterator[str]:
    """The changes since the run was opened, a sentence for each shard."""
    by_folder: dict[str, list[Shard]] = {}
    for shard in shards:
        by_folder.setdefault(shard.url.rpartition("/")[0], []).append(shard)
    for folder, inside in by_folder.items():
        found = identities(locate(folder))
        for shard in inside:
            if why := _why_another(shard, found.get(locate(shard.url).path)):
                yield why


def check_shard(shard: Shard) -> None:
    """Raise ``DataError`` unless the shard is as it was when the run was opened."""
    try:
        found = identity(locate(shard.url))
    except FileNotFoundError:
        found = None
    if problem := _why_another(shard, found):
        raise DataError(problem)


def _why_another(shard: Shard, found: Identity | None) -> str | None:
    if found == Identity(shard.bytes, shard.tag):
        return None
    now = "is gone" if found is None else f"has changed to {found}"
    return (
        f"the shard {redacted(shard.url)} {now}, and was {Identity(shard.bytes, shard.tag)} when the run was "
        "opened: nothing is trained on it; put the same file back, or start another run"
    )
