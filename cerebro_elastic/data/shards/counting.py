"""Counts rows that only reading the shards reveals, while they are fetched for training.

The length of an epoch depends on the rows of all partitions, so nodes wait for each other before the first
unit. Each fetches the partitions that are at home on it, side by side; a node that has none yet fetches those
that no other has claimed, which then become its own. A claim without progress is that of a dead node.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TypeAlias

from cerebro_elastic.data.made_partition import recorded, records
from cerebro_elastic.data.manifest import COUNTS, SPLITS, Manifest, Split, read_manifest
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import (
    Identity,
    Place,
    create,
    identities,
    locate,
    redacted,
    sizes,
    translated,
    write,
)

Home: TypeAlias = Callable[[], Collection[int] | None]
"""Returns the training partitions at home on this node; ``None``: the leader has not assigned any yet."""

_LOOK_SECONDS = 0.5
_RENEW_SECONDS = 5.0
"""So often a node that fetches a partition renews its claim, as long as bytes come."""
_STALE_SECONDS = 60.0
"""A claim that stays the same for so long is that of a node that has died."""


def counted(
    url: str, manifest: Manifest, cache: PartitionCache, beat: Callable[[], None], home: Home = tuple
) -> Manifest:
    """The ``estimated`` dataset at ``url`` with the rows of all partitions, once they are known. Raises
    ``DataError`` if a shard cannot be used."""
    with translated(DataError, f"cannot count the rows of {redacted(url)}"):
        named = _named(manifest)
        claims = _Claims(records(url) / "claims")
        while left := named.keys() - fetched(url):
            mine = None
            if (at_home := home()) is not None:
                ours = {
                    name for name, (split, index) in named.items() if split != "train" or index in at_home
                }
                mine = claims.take(sorted(left), ours if at_home else named.keys())
            if mine is None:
                beat()
                time.sleep(_LOOK_SECONDS)
                continue
            with claims.kept(mine):
                cache.fetch(url, manifest, *named[mine], partial(claims.renew, mine, beat))
        rows: dict[Split, list[int]] = {split: [] for split in SPLITS}
        for split, index in named.values():
            made = recorded(url, split, index)
            assert made is not None, "records stay"
            rows[split].append(made.rows)
        create(locate(url) / COUNTS, json.dumps(rows).encode())
    return read_manifest(url)


def fetched(url: str) -> set[str]:
    """The partitions of the dataset of shards at ``url`` that a host has fetched, such as ``train-00003``."""
    try:
        names = (path.rpartition("/")[2] for path in sizes(records(url)))
    except FileNotFoundError:
        return set()
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def fetched_bytes(url: str, manifest: Manifest) -> tuple[int, int]:
    """The bytes of shards whose rows are counted, and those of all. Raises ``DataError``."""
    with translated(DataError, f"cannot check the counted shards of {redacted(url)}"):
        done = fetched(url)
    sizes_of = {name: manifest.split(split)[index].bytes for name, (split, index) in _named(manifest).items()}
    return sum(sizes_of[name] for name in done), sum(sizes_of.values())


def _named(manifest: Manifest) -> dict[str, tuple[Split, int]]:
    """All partitions by name."""
    return {
        f"{split}-{index:05d}": (split, index)
        for split in SPLITS
        for index in range(len(manifest.split(split)))
    }


class _Claims:
    """The partitions that are being fetched, as files in ``folder`` that change as long as bytes arrive. An
    empty one means that a node has failed to fetch it."""

    def __init__(self, folder: Place) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[Identity | None, float]] = {}
        """By partition its claim, and since when it is the same."""
        self._renewed, self._numbers = 0.0, count(1)

    def take(self, names: Iterable[str], ours: Collection[str]) -> str | None:
        """Claim one of the partitions: one of ``ours``, or one that nobody else seems to be able to fetch."""
        found, now = identities(self._folder), time.monotonic()
        for name in names:
            claim = found.get((self._folder / name).path)
            if claim is None and name in ours and create(self._folder / name, b"0"):
                return name
            before, since = self._seen.get(name, (claim, now))
            self._seen[name] = claim, (since if claim == before else now)
            if (claim is not None and not claim.bytes) or now - self._seen[name][1] > _STALE_SECONDS:
                return name
        return None

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """If the block fails, others see at once whether they fare better."""
        try:
            yield
        except BaseException:
            write(self._folder / name, [])
            raise

    def renew(self, name: str, beat: Callable[[], None]) -> None:
        """Show that the partition is still being fetched."""
        beat()
        if (now := time.monotonic()) - self._renewed > _RENEW_SECONDS:
            self._renewed = now
            write(self._folder / name, [str(next(self._numbers)).encode()])
