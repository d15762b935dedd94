"""Shards of packed rows, as MosaicML's ``streaming`` (MDS) and litData write them.

Both begin with the number of rows and the offset of each row, as uint32. A row has the sizes of its values of
varying size, as uint32, and behind them all values. MDS has the columns in each shard, litData in the
``index.json`` beside them. Both may be compressed by zstd. Formats that only their own code can read
(pickles, rows that are compressed one by one) are refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.kinds.indices import index_beside
from cerebro_elastic.data.kinds.kind import Facts, Wanted, is_wanted, suffix_of
from cerebro_elastic.data.kinds.values import as_column
from cerebro_elastic.data.ragged import Columns, Varying, encoded
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, open_read

PACKED = (".mds", ".zstd", ".bin")
"""The suffixes of MDS, of compressed MDS, and of litData's chunks."""
_FRAMED = b"LDFZ01\0\0"
"""The first bytes of a chunk of litData whose rows are in frames of zstd."""
_FRAMES_FROM = 24
"""The bytes before the offsets of its rows, and of the entry of each frame behind these."""
_ZSTD = b"\x28\xb5\x2f\xfd"
"""The first bytes of a file of zstd. As a number of rows they would be four billion."""

Parse: TypeAlias = Callable[[bytes], Any]

_NUMBERS = {"bool": "?", "int": "<i8", "float": "<f8"} | {
    f"{kind}{bits}": f"<{kind[0]}{bits // 8}"
    for kind, widths in {"uint": (8, 16, 32, 64), "int": (8, 16, 32, 64), "float": (16, 32, 64)}.items()
    for bits in widths
}
"""The dtypes of single numbers, by encoding."""
_ENCODED = frozenset({"bytes", "jpeg", "png", "image", "audio", "video", "file"})
_OF_TORCH = "f4 f4 f8 f8 c8 c8 c16 c16 f2 f2 - u1 i1 i2 i2 i4 i4 i8 i8 ? u2".split()  # noqa: SIM905
"""litData's numbers of torch's dtypes; bfloat16 is none of numpy's."""
_OF_NUMPY = "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 ?".split()  # noqa: SIM905
_OF_MDS = {8: "u1", 9: "i1", 16: "u2", 17: "i2", 18: "f2"}
_OF_MDS |= {32: "u4", 33: "i4", 34: "f4", 64: "u8", 65: "i8", 66: "f8"}
"""MDS's numbers of dtypes in arrays that bear their own."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """A column of packed rows."""

    name: str
    encoding: str
    size: int | None
    """The bytes of a value; ``None`` if they vary."""


def look_at_packed(place: Place, _wanted: Wanted) -> Facts:
    """The number of rows, by the first bytes of the shard."""
    with open_read(place) as file:
        head = file.read(_FRAMES_FROM) or b""
    if head.startswith(_FRAMED):
        return Facts(int.from_bytes(head[12:16], "little"))
    with _opened(place) as (opened, _):
        return Facts(_count(opened, place))


def read_packed(place: Place, wanted: Wanted, most: int | None, _schema: object = None) -> Iterator[Columns]:
    """The columns of the shard at ``place``; of no more than its first ``most`` rows. Raises ``DataError`` if
    it is cut off, or has values that cannot be read without the code that wrote them."""
    with _opened(place) as (file, inflated):
        rows = _count(file, place)
        offsets = np.frombuffer(_exactly(file, 4 * (rows + 1), place), "<u4").astype(np.int64)
        rows = rows if most is None else min(rows, most)
        begin = 4 * (len(offsets) + 1)
        content = _exactly(file, int(offsets[rows]) - begin, place)
    columns = _columns(place, content[: int(offsets[0]) - begin], inflated)
    values = _values(memoryview(content), (offsets[: rows + 1] - begin).tolist(), columns)
    yield {
        column.name: _column(column, values[at], place)
        for at, column in enumerate(columns)
        if is_wanted(column.name, wanted)
    }


@contextmanager
def _opened(place: Place) -> Iterator[tuple[Any, bool]]:
    """The shard without its compression, and whether it had any."""
    with open_read(place) as file:
        head = file.read(len(_FRAMED)) or b""
        file.seek(0)
        if head == _FRAMED:
            yield _unframed(file.readall()), True
        elif head.startswith(_ZSTD):
            with _inflated(file) as inflated:
                yield inflated, True
        else:
            yield file, False


def _unframed(content: bytes) -> io.BytesIO:
    """litData's frames of rows, as a chunk without compression has the rows."""
    rows, frames = np.frombuffer(content, "<u4", 3, 12)[[0, 2]].tolist()
    offsets = np.frombuffer(content, "<u4", rows + 1, _FRAMES_FROM)
    start = _FRAMES_FROM + offsets.nbytes + _FRAMES_FROM * frames
    with _inflated(io.BytesIO(content[start:])) as inflated:
        head = np.array([rows, *(offsets + 4 * (rows + 2))], "<u4")
        return io.BytesIO(head.tobytes() + inflated.read())


def _inflated(file: Any) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")


def _count(file: Any, place: Place) -> int:
    return int.from_bytes(_exactly(file, 4, place), "little")


def _exactly(file: Any, size: int, place: Place) -> bytes:
    """The next bytes of the file. Raises ``DataError`` if it ends before."""
    pieces, missing = [], size
    while missing > 0 and (piece := file.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        raise DataError(f"the shard {place} is cut off: copy it again from its origin")
    return b"".join(pieces)


def _values(content: memoryview, offsets: Sequence[int], columns: Sequence[_Packed]) -> list[list[bytes]]:
    """By column, its values."""
    varying = sum(column.size is None for column in columns)
    values: list[list[bytes]] = [[] for _ in columns]
    for start, stop in pairwise(offsets):
        sizes = iter(np.frombuffer(content[start : start + 4 * varying], "<u4").tolist())
        start += 4 * varying
        for at, column in enumerate(columns):
            size = next(sizes) if column.size is None else column.size
            values[at].append(bytes(content[start : start + size]))
            start += size
        assert start == stop, "the values of a row fill it"
    return values


def _columns(place: Place, head: bytes, inflated: bool) -> list[_Packed]:
    """The columns of the shard, which was ``inflated`` or not; ``head`` is MDS's header."""
    if suffix_of(str(place)) != ".bin":
        config = json.loads(head)
        return [
            _Packed(*column)
            for column in zip(
                config["column_names"], config["column_encodings"], config["column_sizes"], strict=True
            )
        ]
    config = index_beside(place).get("config")
    if config is None:
        raise DataError(f"{place} has no index.json of litData beside it: copy it there, too")
    for key in ("encryption",) if inflated else ("compression", "encryption"):
        if config.get(key):
            raise DataError(
                f"{place} has rows with {key} ({config[key]}): write it without, or use `dataset`"
            )
    if (loader := config.get("item_loader") or "PyTreeLoader") != "PyTreeLoader":
        raise DataError(f"{place} was written for {loader}: only rows of PyTreeLoader can be read in place")
    names = _names(json.loads(config["data_spec"]), len(config["data_format"]), place)
    return [_Packed(name, kind, None) for name, kind in zip(names, config["data_format"], strict=True)]


def _names(spec: Any, count: int, place: Place) -> list[str]:
    """The names in the tree of a row of litData's: a dict's keys, or as ``prepare`` has them of a tuple."""
    tree = spec[1]
    if tree["type"] is None:
        return ["x"]
    if any(child["type"] is not None for child in tree["children_spec"]):
        raise DataError(f"the rows of {place} are nested: write them as a dict or tuple of values")
    if tree["type"] == "builtins.dict":
        return [str(key) for key in json.loads(tree["context"])]
    return ["x", "y"][:count] if count <= 2 else [f"x{at}" for at in range(count)]


def _column(column: _Packed, values: list[bytes], place: Place) -> NDArray[Any] | Varying:
    kind, _, detail = column.encoding.partition(":")
    if kind in _NUMBERS:
        return np.frombuffer(b"".join(values), _NUMBERS[kind])
    if kind in _ENCODED:
        return encoded(values, column.name)
    if kind == "str":
        return np.array([value.decode() for value in values], object)
    parse = _parser(kind, detail)
    if parse is None:
        raise DataError(
            f"column {column.name!r} of {place} is encoded as {column.encoding!r}, which only the program "
            "that wrote it reads: leave it out by `columns`, write numbers, arrays or bytes, or use `dataset`"
        )
    return as_column(column.name, [parse(value) for value in values])


def _parser(kind: str, detail: str) -> Parse | None:
    """The function that makes an array of a value; ``None`` for an unknown encoding."""
    if kind in ("no_header_numpy", "no_header_tensor"):
        known = _OF_NUMPY if kind == "no_header_numpy" else _OF_TORCH
        dtype = known[int(detail)]
        return None if dtype == "-" else lambda value: np.frombuffer(value, dtype)
    if kind == "numpy":
        return lambda value: _with_header(value, "<u4", _OF_NUMPY)
    if kind == "tensor":
        return lambda value: _with_header(value, ">u4", _OF_TORCH)
    if kind == "ndarray":
        dtype, _, shape = detail.partition(":")
        return lambda value: _mds_array(value, dtype, shape)
    return None


def _with_header(value: bytes, header: str, dtypes: Sequence[str]) -> NDArray[Any]:
    """litData's arrays: the number of the dtype, that of the axes, their lengths, the values."""
    number, axes = np.frombuffer(value, header, 2).tolist()
    shape = np.frombuffer(value, header, axes, 8).tolist()
    return np.frombuffer(value, dtypes[number], offset=8 + 4 * axes).reshape(shape)


def _mds_array(value: bytes, dtype: str, shape: str) -> NDArray[Any]:
    """MDS's arrays: the number of the dtype and the lengths of the axes precede the values, unless the
    encoding has them."""
    at = 0
    if not dtype:
        dtype, at = _OF_MDS[value[0]], 1
    if shape:
        lengths = list(map(int, shape.split(",")))
    else:
        axes, width = value[at] >> 2, 1 << (value[at] & 3)
        lengths = np.frombuffer(value, f"<u{width}", axes, at + 1).tolist()
        at += 1 + axes * width
    return np.frombuffer(value, dtype, offset=at).reshape(lengths)
