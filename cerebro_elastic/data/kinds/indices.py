"""The ``index.json`` that others' writers leave beside their shards, and files of ours that name where rows
are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Identity, Place, exists, identity, locate, read, write

_NAME = "index.json"


def index_beside(place: Place) -> Mapping[str, Any]:
    """The index in the folder of the shard; empty without one."""
    url = f"{str(place).rpartition('/')[0]}/{_NAME}"  # of a copy, beside its original
    try:
        return _index(url, identity(locate(url)))
    except FileNotFoundError:
        return {}


@lru_cache(8)
def _index(url: str, _identity: Identity) -> Mapping[str, Any]:
    try:
        index = json.loads(read(locate(url)))
        if isinstance(index, dict):
            return index
    except ValueError:
        pass
    raise DataError(f"{url} is no index of shards: write it again, or remove it")


def rows_by_index(place: Place) -> int | None:
    """The rows of a tar archive by the index of WebDataset (``widsindex create``), if it has one."""
    name = str(place).rpartition("/")[2]
    listed = index_beside(place).get("shardlist", ())
    return next((int(entry["nsamples"]) for entry in listed if entry["url"].endswith(name)), None)


def write_index(folder: Place, number: int, suffix: str, index: Mapping[str, Any]) -> Place:
    """Write an index of ours. Its name has its digest: an existing file stays as it is."""
    content = json.dumps(index).encode()
    place = folder / f"{number:05d}-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    if not exists(place):
        write(place, [content])
    return place
