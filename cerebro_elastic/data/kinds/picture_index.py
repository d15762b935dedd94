"""Shards of a folder of pictures: its listing is shuffled and cut into files, each of which names the
pictures of one shard. The pictures stay where they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import starmap
from typing import Any

import numpy as np

from cerebro_elastic.data.categories import Coded
from cerebro_elastic.data.kinds.byte_ranges import FileRanges
from cerebro_elastic.data.kinds.indices import write_index
from cerebro_elastic.data.kinds.kind import Facts, Wanted
from cerebro_elastic.data.kinds.pictures import read_images
from cerebro_elastic.data.ragged import Columns, Index
from cerebro_elastic.system.files import Place, locate, read

INDEX = ".pictures"
"""The suffix of a file that names the pictures of a shard."""


def write_indices(folder: Place, destination: Place, count: int, seed: int) -> list[Place]:
    """Write ``count`` files to ``destination`` that name the pictures in ``folder``, by ``seed``."""
    columns = read_images(folder)
    image, label = columns["image"], columns["label"]
    assert isinstance(image, FileRanges)
    assert isinstance(label, Coded)
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).permutation(len(image))
    shared = {"folder": folder.fs.unstrip_protocol(folder.path), "classes": list(label.categories)}

    def written(at: int, rows: Index) -> Place:
        named = [[image.keys[row], int(image.sizes[row]), int(label[row])] for row in np.sort(rows)]
        return write_index(destination, at, INDEX, {**shared, "pictures": named})

    return list(starmap(written, enumerate(np.array_split(order, min(count, len(order))))))


def look_at_index(place: Place, _wanted: Wanted) -> Facts:
    """The number of pictures, and their bytes."""
    pictures = _index(place)["pictures"]
    return Facts(len(pictures), elsewhere=sum(size for _, size, _ in pictures))


def read_index(place: Place, _wanted: Wanted, most: int | None, _schema: object = None) -> Iterator[Columns]:
    """The columns ``image`` and ``label``, as of a folder of pictures."""
    index = _index(place)
    names, sizes, labels = zip(*index["pictures"][:most], strict=True)
    folder, rows = locate(index["folder"]), np.arange(len(names), dtype=np.int64)
    image = FileRanges(
        [folder / name for name in names],
        rows,
        np.zeros_like(rows),
        np.array(sizes, np.int64),
        names,
        whole=True,
    )
    yield {"image": image, "label": Coded.of(labels, index["classes"])}


def _index(place: Place) -> dict[str, Any]:
    index: dict[str, Any] = json.loads(read(place))
    return index
