"""Folders of pictures, tar shards, JSON lines, Arrow and datasets of Hugging Face as sources."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from PIL import Image

from cerebro_elastic.data.manifest import Manifest, Split
from cerebro_elastic.data.preparing.growing import GrowingColumn
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.errors import DataError
from support.prepared import prepare

CLASSES = ("ant", "bee", "été")


def picture(value: int, kind: str = "jpeg") -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((6, 6, 3), value, np.uint8)).save(file, kind)
    return file.getvalue()


def image_folder(root: str, rows: int = 3) -> dict[str, bytes]:
    """Write pictures, which differ, by class; returns them by path."""
    written = {}
    fs, path = fsspec.core.url_to_fs(root)
    for code, name in enumerate(CLASSES):
        for row in range(rows):
            inside = f"{name}/{'deep/' if row == 1 else ''}{row}.{'JPG' if row else 'jpeg'}"
            written[inside] = picture(80 * code + row)
            fs.makedirs(os.path.dirname(f"{path}/{inside}"), exist_ok=True)
            fs.pipe_file(f"{path}/{inside}", written[inside])
    return written


def shard(path: Path, members: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def rows_of(url: str, manifest: Manifest, cache: Path, split: Split = "train") -> list[dict[str, Any]]:
    """All rows of a split, each as its values."""
    rows = []
    for index in range(len(manifest.split(split))):
        partition = PartitionCache(cache).fetch(url, manifest, split, index)
        settings = LoaderSettings(1, "dict", ragged="list")
        for batch in batches(partition, np.arange(partition.rows), settings):
            rows.append(
                {
                    name: value[0] if isinstance(value[0], bytes) else value[0].tolist()
                    for name, value in batch.items()
                }
            )
    return rows


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture(params=["local", "memory"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield {"local": str(tmp_path / "in"), "memory": "memory://in"}[request.param]
    fsspec.filesystem("memory").store.clear()


def test_folders_of_pictures_are_classes(anywhere: str, out: str, tmp_path: Path) -> None:
    written = image_folder(f"{anywhere}/train")
    image_folder(f"{anywhere}/val", rows=1)
    manifest = prepare(anywhere, out, partitions=2, seed=0)
    assert [(c.name, c.kind) for c in manifest.columns] == [("image", "bytes"), ("label", "rows")]
    assert manifest.vocabulary == {"label": list(CLASSES)}
    found = rows_of(out, manifest, tmp_path)
    assert {(row["image"], row["label"]) for row in found} == {
        (content, CLASSES.index(path.split("/")[0])) for path, content in written.items()
    }
    assert len(found) == len(written)
    assert [row["label"] for row in rows_of(out, manifest, tmp_path, "valid")] == [0, 1, 2]
    assert prepare(f"{anywhere}/train", out, partitions=2, seed=0, valid=f"{anywhere}/val") == manifest


@pytest.mark.parametrize("kind", [".heic", ".svg", ".mp4", ".jpg_"])
def test_files_that_may_be_pictures_are_not_left_out_without_a_word(
    tmp_path: Path, out: str, kind: str
) -> None:
    image_folder(str(tmp_path / "in"))
    for row in range(2):
        (tmp_path / "in/bee" / f"{row}{kind}").write_bytes(b"")
    with pytest.raises(DataError, match=rf"not known as pictures \(2 {kind}\), beside pictures: convert"):
        prepare(str(tmp_path / "in"), out, partitions=1, seed=0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "none").mkdir(), "class folder .*in/none has no picture"),
        (lambda root: (root / "x.png").write_bytes(picture(1)), "1 picture in no sub-folder, such as x.png"),
        (
            lambda root: (root / "bee/0.jpeg").write_bytes(picture(1)[:200]),
            r"1 of 9 rows have a picture.*\n  row 3 \(train\): bee/0.jpeg \(image\): OSError",
        ),
        (
            lambda root: (root / "bee/0.jpeg").write_bytes(b""),
            "row 3 .*bee/0.jpeg .*: UnidentifiedImageError",
        ),
    ],
)
def test_errors_in_folders_of_pictures(
    spoil: Callable[[Path], Any], message: str, tmp_path: Path, out: str
) -> None:
    image_folder(str(tmp_path / "in"))
    spoil(tmp_path / "in")
    with pytest.raises(DataError, match=message):
        prepare(str(tmp_path / "in"), out, partitions=1, seed=0)
    assert not Path(out).exists()


def test_as_many_broken_pictures_as_allowed_are_left_out_and_reported(tmp_path: Path, out: str) -> None:
    written = image_folder(str(tmp_path / "in"))
    (tmp_path / "in/ant/0.jpeg").write_bytes(b"no picture")
    manifest = prepare(str(tmp_path / "in"), out, partitions=1, seed=0, max_bad_rows=1)
    found = {row["image"] for row in rows_of(out, manifest, tmp_path)}
    assert found == set(written.values()) - {written["ant/0.jpeg"]}
    report = json.loads(Path(out, "report.json").read_text())
    assert report["bad"] == 1
    assert report["sample"] == [
        {
            "split": "train",
            "row": 0,
            "why": "ant/0.jpeg (image): UnidentifiedImageError: cannot identify image file",
        }
    ]
    with pytest.raises(DataError, match=r"`max_bad_rows` .* there are none; leave it out"):
        prepare(lambda: {"y": [1, 2]}, out + "2", partitions=1, seed=0, max_bad_rows=1)


def samples(rows: range) -> dict[str, bytes]:
    return {
        name: content
        for row in rows
        for name, content in {
            f"d/{row:04d}.jpg": picture(row),
            f"d/{row:04d}.cls": str(row % 3).encode(),
            f"d/{row:04d}.json": json.dumps({"boxes": [[row] * 4] * (row % 3), "w": row / 2}).encode(),
        }.items()
    }


def test_tar_shards_have_a_column_for_each_extension(tmp_path: Path, out: str) -> None:
    for number in range(3):
        shard(tmp_path / f"s-{number:02d}.tar", samples(range(4 * number, 4 * number + 4)))
    manifest = prepare(str(tmp_path / "s-{00..02}.tar"), out, partitions=2, seed=0)
    assert [(c.name, c.dtype, c.shape, c.kind) for c in manifest.columns] == [
        ("jpg", "|u1", (), "bytes"),
        ("cls", "<i8", (), "rows"),
        ("json.boxes", "<i8", (4,), "ragged"),
        ("json.w", "<f8", (), "rows"),
    ]
    for row in rows_of(out, manifest, tmp_path):
        number = int(row["json.w"] * 2)
        assert row["jpg"] == picture(number)
        assert row["cls"] == number % 3
        assert row["json.boxes"] == [[number] * 4] * (number % 3)
    assert prepare(str(tmp_path / "*.tar"), out, partitions=2, seed=0) == manifest


def test_names_of_classes_in_tar_shards_become_codes(tmp_path: Path, out: str) -> None:
    members = {"a.bin": b"1", "a.cls": b"cat\n", "b.BIN": b"2", "b.cls": b"ape", ".c.cls": b"", "c": b""}
    manifest = prepare(shard(tmp_path / "a.tar", members), out, partitions=1, seed=0)
    assert manifest.vocabulary == {"cls": ["ape", "cat"]}
    assert sorted((row["bin"], row["cls"]) for row in rows_of(out, manifest, tmp_path)) == [
        (b"1", 1),
        (b"2", 0),
    ]


def test_an_archive_that_is_cut_off_anywhere_is_refused(tmp_path: Path, out: str) -> None:
    whole = shard(tmp_path / "whole.tar", samples(range(2))).read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as archive:
        members = archive.getmembers()
    data_end = members[-1].offset_data + 512
    for at in (
        members[1].offset,
        members[1].offset_data,
        members[3].offset_data + 100,
        data_end - 10,
        data_end,
    ):
        (tmp_path / "cut.tar").write_bytes(whole[:at])
        with pytest.raises(DataError, match=r"archive .*cut.tar is cut off at"):
            prepare(tmp_path / "cut.tar", out, partitions=1, seed=0)
    (tmp_path / "cut.tar").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"cut.tar is no tar archive"):
        prepare(tmp_path / "cut.tar", out, partitions=1, seed=0)
    (tmp_path / "packed.tar.gz").write_bytes(gzip.compress(whole))
    with pytest.raises(DataError, match=r"has compressed files \(\.gz\), .*: unpack them"):
        prepare(tmp_path / "packed.tar.gz", out, partitions=1, seed=0)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.bin": b"1", "a.cls": b"1", "b.bin": b"2"}, r"'cls' .* has no value in 1 of 2 rows \(1;"),
        ({"22.05.png": b"1", "22.06.png": b"2", "23.05.png": b"3"}, r"22.06.png .* ends at its first dot"),
        ({"a.json": b"{"}, "a.json cannot be read: Expecting"),
        ({"a.jpg": picture(1)[:300]}, r"row 0 \(train\): .*a.tar: a.jpg \(jpg\): OSError"),
        ({}, "no samples"),
    ],
)
def test_errors_in_tar_shards(members: dict[str, bytes], message: str, tmp_path: Path, out: str) -> None:
    shard(tmp_path / "a.tar", members)
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "a.tar", out, partitions=1, seed=0)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


def add(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "a") as archive:
        for member in members:
            archive.addfile(member)
    return path


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (link("1.bin", "d/0.bin"), "has 1.bin, a link to d/0.bin: .*--dereference --hard-dereference"),
        (link("1.bin", "d/0.bin", tarfile.LNKTYPE), "has 1.bin, a link to d/0.bin"),
        (link("1.bin", "", b"M"), "has 1.bin, of a type 'M' that is no file"),
        (link("d/0.bin", "", tarfile.REGTYPE), "has d/0.bin twice"),
    ],
)
def test_an_archive_that_would_lose_rows_is_refused(
    member: tarfile.TarInfo, message: str, tmp_path: Path, out: str
) -> None:
    shard(tmp_path / "a.tar", {"d/0.bin": b"one"})
    add(tmp_path / "a.tar", link("d", "", tarfile.DIRTYPE), member)
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "a.tar", out, partitions=1, seed=0)


def saved_by_datasets(folder: Path, names: list[str]) -> None:
    """As ``save_to_disk`` writes a dataset with pictures and classes."""
    features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", image), ("label", pa.int64())]).with_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    folder.mkdir(parents=True)
    batch = pa.record_batch(
        [[{"bytes": b"1", "path": "1.png"}, {"bytes": b"2", "path": None}], [0, 1]], schema=schema
    )
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, schema) as writer,
    ):
        writer.write_batch(batch)
    (folder / "cache-17.arrow").write_text("no table")
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))


def test_a_dataset_of_hugging_face_keeps_its_classes(tmp_path: Path, out: str) -> None:
    saved_by_datasets(tmp_path / "in" / "train", ["zebra", "ape"])
    saved_by_datasets(tmp_path / "in" / "validation", ["ape", "zebra"])
    manifest = prepare(tmp_path / "in", out, partitions=1, seed=0)
    assert manifest.vocabulary == {"label": ["zebra", "ape"]}
    assert sorted((row["image"], row["label"]) for row in rows_of(out, manifest, tmp_path)) == [
        (b"1", 0),
        (b"2", 1),
    ]
    assert [row["label"] for row in rows_of(out, manifest, tmp_path, "valid")] == [1, 0], "by their names"


def test_the_types_of_a_long_csv_are_those_of_all_its_rows(tmp_path: Path, out: str) -> None:
    long = "x" * 2000
    with open(tmp_path / "in.csv", "w") as file:
        file.write("a,b,c,long\n")
        file.writelines(f"{row},,3,{long}\n" for row in range(4300))  # the first 8 MB
        file.write(f"0.5,7,,{long}\n")
    keys = {"columns": ["a", "b", "c"]}
    fill = {"b": 1, "c": -1}
    manifest = prepare(tmp_path / "in.csv", out, partitions=1, seed=0, **keys, fill=fill)
    assert [(c.name, c.dtype) for c in manifest.columns] == [("a", "<f8"), ("b", "<i8"), ("c", "<i8")]
    last = next(row for row in rows_of(out, manifest, tmp_path) if row["a"] == 0.5)
    assert last == {"a": 0.5, "b": 7, "c": -1}


def test_a_column_grows_in_files_as_in_memory() -> None:
    parts = [np.arange(3), np.array([0.5, np.nan]), np.arange(2, dtype="i4")]
    flags = [np.array([True, False]), np.array([None, True], object)]
    lists = [Ragged(np.arange(3), np.array([0, 1, 3])), Ragged(np.arange(2), np.array([0, 0, 2]))]
    for given in (parts, flags, lists):
        grown = []
        for in_memory in (0, 1 << 20):
            column = GrowingColumn("x", in_memory)
            for part in given:
                column.append(part)
            whole = column.whole()
            grown.append((whole.lengths.tolist(), whole.values) if isinstance(whole, Ragged) else ([], whole))
        (lengths, on_disk), (others, in_ram) = grown
        assert lengths == others
        assert on_disk.dtype == in_ram.dtype
        assert str(on_disk.tolist()) == str(in_ram.tolist())


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ({"z": 0}, "`fill` names 'z', which is no column: choices: t, x"),
        ({"x": "no"}, "'x' has float64 numbers, and `fill` gives 'no'"),
        ({"t": 3}, "'t' has values of type str, and `fill` gives 3"),
        ({"x": 1}, r"'t' .* no value in 1 of 3 rows \(1;"),
    ],
)
def test_a_value_that_does_not_fill_is_refused(
    fill: dict[str, Any], message: str, tmp_path: Path, out: str
) -> None:
    (tmp_path / "in.csv").write_text("x,t\n1,a\n,\n3,b\n")
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "in.csv", out, partitions=1, seed=0, encode=["t"], fill=fill)
    manifest = prepare(
        tmp_path / "in.csv",
        out,
        partitions=1,
        seed=0,
        encode=["t"],
        fill={"x": 2, "t": "none"},
    )
    assert manifest.vocabulary == {"t": ["a", "b", "none"]}
    assert manifest.columns[0].dtype == "<i8", "whole numbers stay whole"


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA, pandas.NaT], ids=str)
def test_missing_words_of_pandas_are_filled(missing: Any, out: str) -> None:
    words = np.array(["a", missing, "b"], object)
    keys = {"encode": ["t"]}
    manifest = prepare(lambda: {"t": words}, out, partitions=1, seed=0, **keys, fill={"t": "no"})
    assert manifest.vocabulary == {"t": ["a", "b", "no"]}
