"""The columns that a host has made of a partition's shards. The first host of a run records their digests
beside the manifest; other hosts, and later attempts, must make the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cerebro_elastic.data.manifest import ColumnFile, Split
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, create, locate, read, redacted, translated

_NAME = "made.json"
_KEPT = 4096
"""The number of partitions whose records a process remembers."""


@dataclass(frozen=True, slots=True)
class MadePartition:
    """The column files that were made of the shards of a partition."""

    files: tuple[ColumnFile, ...]
    """As of a partition that was prepared; the paths are those in the cache."""
    shards: Mapping[str, str]
    """The sha256 of each shard, by URL."""
    rows: int = 0
    """Those of all shards; 0 in records of earlier releases."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


def numbered(at: int) -> str:
    """The name of a column's file in the cache."""
    return f"{at:03d}.npy"


def path_in(folder: Path) -> Path:
    """The record in a partition's folder of the cache."""
    return folder / _NAME


def made_in(folder: Path) -> MadePartition | None:
    """The record of this host in the folder of the cache, if it has made the partition."""
    path = path_in(folder)
    try:
        return _parsed_file(path, path.stat().st_mtime_ns)
    except (OSError, ValidationError):  # never made, dropped, or damaged: it is made again
        return None


@lru_cache(_KEPT)  # each look into the cache calls it
def _parsed_file(path: Path, _changed: int) -> MadePartition:
    return _parsed(path.read_bytes())


def recorded(url: str, split: Split, index: int) -> MadePartition | None:
    """The first host's record of a partition of the dataset at ``url``; ``None`` if no host has made it
    yet."""
    try:
        return _parsed(read(_record(url, split, index)))
    except FileNotFoundError:
        return None
    except ValidationError as exc:
        raise DataError(f"{_record(url, split, index)} is damaged: {exc}; start another run") from exc


def compare(url: str, split: Split, index: int, made: MadePartition) -> None:
    """Record this host's result as the first one. Raises ``DataError`` if another host has a different result
    from the same shards; the message names those that differ."""
    name = f"{split} partition {index} of {redacted(url)}"
    with translated(DataError, f"cannot record the columns made of {name}"):
        if create(_record(url, split, index), made.to_json()):
            return
        first = recorded(url, split, index)
    if first is None or (first.files, first.shards) == (made.files, made.shards):
        return
    other = [shard for shard, digest in made.shards.items() if first.shards.get(shard) != digest]
    what = f"the shard {redacted(other[0])} has" if other else "the columns that were made of its shards have"
    raise DataError(
        f"{name}: {what} another content than the first host of the run has read: nothing is trained on it "
        "here; put the same file back, or look at this host's storage, memory and version of pyarrow"
    )


def _record(url: str, split: Split, index: int) -> Place:
    return records(url) / f"{split}-{index:05d}.json"


def records(url: str) -> Place:
    """The folder of the first hosts' records of the dataset at ``url``."""
    return locate(url) / "made"


def _parsed(text: bytes) -> MadePartition:
    return TypeAdapter(MadePartition).validate_json(text)
