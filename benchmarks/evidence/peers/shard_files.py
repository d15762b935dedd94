"""Writes the same rows as shards of several kinds, each by the library whose kind it is.

    python benchmarks/evidence/peers/shard_files.py FOLDER MEGABYTES

A row is a picture of 3 x 32 x 32 numbers, 12 KB, and its class. The folder gets a folder for each kind.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

SHARDS, WIDTH, CLASSES = 64, 3 * 32 * 32, 10
ROW_BYTES = 4 * WIDTH
KINDS = {"parquet": "parquet", "tar": "tar", "mds": "mds", "litdata": "bin"}
"""The folders, and the suffix of their shards."""


def rows_in(megabytes: int) -> int:
    """The rows of a shard."""
    return megabytes * 1_000_000 // ROW_BYTES // SHARDS


def rows_of(shard: int, rows: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(shard)
    return rng.standard_normal((rows, WIDTH), np.float32), rng.integers(CLASSES, size=rows)


def write_parquet(folder: Path, shard: int, x: NDArray[np.float32], y: NDArray[np.int64]) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTH)
    table = pa.table({"x": lists, "y": y})
    pyarrow.parquet.write_table(
        table, folder / f"{shard:03d}.parquet", compression="none", use_dictionary=False
    )


def write_tar(folder: Path, shard: int, x: NDArray[np.float32], y: NDArray[np.int64]) -> None:
    with tarfile.open(folder / f"{shard:03d}.tar", "w") as archive:
        for row in range(len(y)):
            for suffix, content in (("bin", x[row].tobytes()), ("cls", str(y[row]).encode())):
                member = tarfile.TarInfo(f"{row:07d}.{suffix}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def write_mds(folder: Path, rows: int) -> None:
    columns = {"x": f"ndarray:float32:{WIDTH}", "y": "int64"}
    limit = rows * (ROW_BYTES + 20) + 4096
    with mosaicml().MDSWriter(out=str(folder), columns=columns, size_limit=limit) as writer:
        for shard in range(SHARDS):
            x, y = rows_of(shard, rows)
            for row in range(rows):
                writer.write({"x": x[row], "y": y[row]})


def some_rows(at: tuple[range, int]) -> Iterator[dict[str, Any]]:
    """The rows of some shards."""
    shards, rows = at
    for shard in shards:
        x, y = rows_of(shard, rows)
        for row in range(rows):
            yield {"x": x[row], "y": int(y[row])}


def write_litdata(folder: Path, rows: int) -> None:
    import litdata

    few = [(range(first, first + SHARDS // 4), rows) for first in range(0, SHARDS, SHARDS // 4)]
    litdata.optimize(some_rows, few, str(folder), chunk_size=rows, num_workers=1)


def mosaicml() -> Any:
    """What MosaicML's ``streaming`` reads and writes with, without its collections of pictures, which need
    torchvision."""
    spec = find_spec("streaming")
    assert spec is not None
    sys.modules.setdefault("streaming", module_from_spec(spec))
    from streaming import base

    return base


def model() -> Any:
    """The net of all systems."""
    from torch import nn

    return nn.Linear(WIDTH, CLASSES)


def opened(content: Any) -> NDArray[np.float32]:
    """A row of a tar."""
    return np.frombuffer(content, np.float32)


def main(folder: Path, megabytes: int) -> None:
    rows = rows_in(megabytes)
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
    for shard in range(SHARDS):
        x, y = rows_of(shard, rows)
        write_parquet(folder / "parquet", shard, x, y)
        write_tar(folder / "tar", shard, x, y)
    write_mds(folder / "mds", rows)
    write_litdata(folder / "litdata", rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
