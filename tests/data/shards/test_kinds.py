"""Each kind of shards gives the rows that were written, wherever the shards lie."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest
from s3fs import S3FileSystem

from cerebro_elastic import prepare
from cerebro_elastic.data.manifest import COUNTS, Manifest, read_manifest
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.shards import counting
from cerebro_elastic.data.shards.counting import counted, fetched_bytes
from cerebro_elastic.data.shards.making import make_columns
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import locate, read, write
from support.proxy import BadProxy
from support.sharded import killed_while_it_fetches, opened

MADE_BY_OTHERS = Path(__file__).parent / "made_by_others"
"""Ten rows, each in shards that ``mosaicml-streaming`` 0.13.0 and ``litdata`` 0.2.76 have written, with zstd
and without."""


def row(number: int) -> dict[str, Any]:
    """A row, as it is in all shards of these tests; not every kind can have all of it."""
    return {
        "x": np.arange(2, dtype=np.float32) + number,
        "y": number % 3,
        "tokens": np.arange(2 if 4 <= number < 7 else number % 4 + 1),  # of one length in one shard
        "image": bytes([number]) * (number + 1),
    }


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pyarrow.csv.write_csv(pa.table({"number": [r["x"][0] for r in rows], "y": [r["y"] for r in rows]}), file)
    return file.getvalue()


def as_json_lines(rows: list[dict[str, Any]]) -> bytes:
    values = [{"x": r["x"].tolist(), "y": r["y"], "tokens": r["tokens"].tolist()} for r in rows]
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([r[name] for r in rows]) for name in rows[0]})


def as_feather(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pyarrow.feather.write_feather(table_of(rows), file)
    return file.getvalue()


def as_arrow_stream(rows: list[dict[str, Any]]) -> bytes:
    views = pa.array([r["tokens"] for r in rows], pa.list_view(pa.int64()))
    table, file = table_of(rows).set_column(2, "tokens", views), io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    return file.getvalue()


def as_arrays(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=[r["x"] for r in rows], y=[r["y"] for r in rows])
    return file.getvalue()


def as_one_array(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.stack([r["x"] for r in rows]))
    return file.getvalue()


def as_hdf5(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as opened_file:
        for name, kind in (("tokens", np.int64), ("image", np.uint8)):
            opened_file.create_dataset(name, (len(rows),), dtype=h5py.vlen_dtype(kind))
        for at, r in enumerate(rows):
            opened_file["tokens"][at] = r["tokens"]
            opened_file["image"][at] = np.frombuffer(r["image"], np.uint8)
        opened_file["x"], opened_file["y"] = [r["x"] for r in rows], [r["y"] for r in rows]
    return file.getvalue()


def as_tar(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for r in rows:
            key = f"{int(r['x'][0]):06d}"
            members = {
                "image": r["image"],
                "cls": str(r["y"]).encode(),
                "json": json.dumps({"x": r["x"].tolist(), "tokens": r["tokens"].tolist()}).encode(),
            }
            for extension, content in members.items():
                member = tarfile.TarInfo(f"{key}.{extension}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


WRITERS: Mapping[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "csv": as_csv,
    "jsonl": as_json_lines,
    "feather": as_feather,
    "arrow": as_arrow_stream,
    "npz": as_arrays,
    "npy": as_one_array,
    "h5": as_hdf5,
    "tar": as_tar,
}


def written(url: str, kind: str) -> str:
    """Ten rows in shards below ``url``, and the name that a recipe gives them."""
    if (MADE_BY_OTHERS / kind).is_dir():
        for file in (MADE_BY_OTHERS / kind).iterdir():
            write(locate(url) / file.name, [file.read_bytes()])
        return url
    for shard, numbers in enumerate((range(4), range(4, 7), range(7, 10))):
        write(locate(url) / f"{shard}.{kind}", [WRITERS[kind](list(map(row, numbers)))])
    return f"{url}/*.{kind}"


def rows_in(url: str, manifest: Manifest, cache: PartitionCache) -> list[dict[str, Any]]:
    """All rows of the training partitions, by ``x``."""
    found = []
    for index in range(len(manifest.train)):
        part = cache.fetch(url, manifest, "train", index)
        for at in range(part.rows):
            values = {
                name.removeprefix("json."): column.row(at) if isinstance(column, Ragged) else column[at]
                for name, column in part.columns.items()
            }
            found.append(values)
    return sorted(
        found,
        key=lambda values: float(
            np.ravel(next(values[name] for name in ("x", "number", "image") if name in values))[0]
        ),
    )


@pytest.mark.parametrize("where", ["local", "s3"])
@pytest.mark.parametrize("kind", [*WRITERS, "mds", "mds_zstd", "litdata", "litdata_zstd"])
def test_each_kind_has_the_rows_that_were_written(
    kind: str, where: str, s3: BadProxy, tmp_path: Path
) -> None:
    shards = written("s3://bucket/shards" if where == "s3" else str(tmp_path / "shards"), kind)
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    s3.served.clear()
    found = rows_in(url, manifest, PartitionCache(tmp_path / "cache", make=make_columns))
    assert len(found) == 10
    assert {column.kind for column in manifest.columns if column.name == "image"} <= {"bytes"}
    for number, values in enumerate(found):
        expected = row(number)
        assert values.get("cls", values.get("y", expected["y"])) == expected["y"]
        for name in ("x", "tokens"):
            if name in values:
                np.testing.assert_array_equal(values[name], expected[name])
        if "image" in values:
            assert values["image"].tobytes() == expected["image"]
    if where == "s3":
        fetched = sum(size for path, size in s3.served.items() if "index.json" not in path)
        assert fetched == manifest.training_bytes


def test_an_index_of_webdataset_saves_the_counting(s3: BadProxy, tmp_path: Path) -> None:
    shards = written("s3://bucket/shards", "tar")
    listed = [{"url": f"{shard}.tar", "nsamples": rows} for shard, rows in enumerate((4, 3, 3))]
    index = locate("s3://bucket/shards/index.json")
    write(index, [json.dumps({"wids_version": 1, "shardlist": listed}).encode()])
    s3.reset()
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    assert {path for path in s3.served if path.endswith(".tar")} == {"/bucket/shards/0.tar"}  # its first rows
    assert len(rows_in(url, manifest, PartitionCache(tmp_path / "cache", make=make_columns))) == 10

    write(index, [read(index).replace(b"3", b"2")])
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    with pytest.raises(DataError, match=r"tar has 3 rows, and 2 by its footer or index"):
        rows_in(url, manifest, PartitionCache(tmp_path / "cache", make=make_columns))


@pytest.mark.parametrize("where", ["local", "s3"])
def test_pictures_in_folders_of_classes_stay_where_they_are(where: str, s3: BadProxy, tmp_path: Path) -> None:
    url = "s3://bucket/pictures" if where == "s3" else str(tmp_path / "pictures")
    for number in range(12):
        write(locate(url) / f"{'ab'[number % 2]}/{number}.jpg", [bytes([number]) * (number + 1)])
    s3.reset()
    dataset, manifest = opened(url, str(tmp_path / "data"), partitions=2, valid=0.25)
    assert opened(url, str(tmp_path / "data"), partitions=2, valid=0.25)[1] == manifest
    assert manifest.vocabulary == {"label": ["a", "b"]}
    assert max(manifest.rows) - min(manifest.rows) <= 1
    assert sum(manifest.rows) + manifest.valid[0].rows == 12
    found = rows_in(dataset, manifest, PartitionCache(tmp_path / "cache", make=make_columns))
    for values in found:
        number = int(values["image"][0])
        assert values["image"].tobytes() == bytes([number]) * (number + 1)
        assert values["label"] == number % 2
    assert not [request for request in s3.requests if request.method in ("PUT", "POST", "DELETE")]

    for number in range(12):
        write(locate(url) / f"{'ab'[number % 2]}/{number}.jpg", [bytes([number]) * (number + 2)])
    with pytest.raises(DataError, match=r"\.jpg is no longer the file of \d+ bytes that was listed"):
        rows_in(dataset, manifest, PartitionCache(tmp_path / "other", make=make_columns))


def test_hosts_count_side_by_side_and_fetch_each_shard_once(
    s3: BadProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, manifest = opened(written("s3://bucket/shards", "tar"), str(tmp_path / "data"), partitions=3)
    assert (manifest.estimated, {shard.rows for shard in manifest.shards}) == (True, {0})
    total = manifest.training_bytes
    assert fetched_bytes(url, manifest) == (0, total)
    s3.served.clear()

    def on_host(number: int) -> tuple[Manifest, tuple[int, ...]]:
        cache = PartitionCache(tmp_path / f"host-{number}", make=make_columns)
        home = [number] if number < 3 else None  # the last one has no home: there are too few shards
        return counted(url, manifest, cache, lambda: None, lambda: home), cache.cached(manifest)

    with ThreadPoolExecutor(4) as hosts:
        found = list(hosts.map(on_host, range(4)))
    assert sum(s3.served.values()) == total
    assert fetched_bytes(url, manifest) == (total, total)
    assert [cached for _, cached in found] == [(0,), (1,), (2,), ()]
    for one, _ in found:
        assert (one, one.digest) == (read_manifest(url), manifest.digest)
        assert (sorted(one.rows), one.estimated) == ([3, 3, 4], False)
    s3.served.clear()
    assert len(prepare("s3://bucket/shards", str(tmp_path / "prepared"), partitions=2).train) == 2
    assert sum(size for path, size in s3.served.items() if ".tar" in path) == total  # as a source, too

    # A host that was killed has left its claim, and nothing that others could take.
    for name in ("train-00000.json", "claims/train-00000", f"../{COUNTS}"):
        next((tmp_path / "data").glob(f"*/made/{name}")).unlink()
    killed_while_it_fetches(url, tmp_path / "killed")
    assert fetched_bytes(url, manifest) == (total - manifest.train[0].bytes, total)
    monkeypatch.setattr(counting, "_STALE_SECONDS", 0.1)
    cache = PartitionCache(tmp_path / "another", make=make_columns)
    assert counted(url, manifest, cache, lambda: None, lambda: [1]) == found[0][0]
    assert cache.cached(manifest) == (0,)


@pytest.mark.parametrize("where", ["local", "s3"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_is_cut_between_chunks(
    version: int, where: str, s3: BadProxy, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    zarr = pytest.importorskip("zarr")
    request.addfinalizer(zarr.core.sync.cleanup_resources)  # its thread, in which s3fs works
    request.addfinalizer(S3FileSystem.clear_instance_cache)
    url = "s3://bucket/rows.zarr" if where == "s3" else str(tmp_path / "rows.zarr")
    group = zarr.open_group(url, mode="w", zarr_format=version)
    for name in ("x", "y"):
        values = np.stack([row(number)[name] for number in range(10)])
        group.create_array(name, data=values, chunks=(3, *values.shape[1:]))
    group.create_array("longitude", data=np.arange(4))  # as xarray writes the coordinates of other axes
    with pytest.raises(DataError, match=r"rows.zarr have .*'longitude': 4.* rows: name those .* `columns`"):
        opened(url, str(tmp_path / "data"), partitions=2)
    s3.reset()
    dataset, manifest = opened(url, str(tmp_path / "data"), partitions=2, columns=["x", "y"])
    assert sorted(shard.rows for shard in manifest.shards) == [1, 3, 3, 3]
    found = rows_in(dataset, manifest, PartitionCache(tmp_path / "cache", make=make_columns))
    for number, values in enumerate(found):
        np.testing.assert_array_equal(values["x"], row(number)["x"])
        assert values["y"] == row(number)["y"]
    assert not [each for each in s3.requests if each.method in ("PUT", "POST", "DELETE")]

    zarr.open_group(url, mode="a")["y"].resize((9,))
    with pytest.raises(DataError, match=r"rows.zarr has other arrays than when the run was opened"):
        rows_in(dataset, manifest, PartitionCache(tmp_path / "other", make=make_columns))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("mds", lambda path: path.write_bytes(path.read_bytes()[:-9]), "the shard .* is cut off"),
        ("litdata", lambda path: (path.parent / "index.json").unlink(), "no index.json of litData beside"),
        ("litdata", lambda path: compressed(path.parent / "index.json"), "has rows with compression"),
        (
            "csv",
            lambda path: path.write_text("number\n1\n"),
            "column 'y' of .*2.(csv|jsonl) holds NaN in 1 of 1 row",
        ),
        (
            "csv",
            lambda path: path.write_text("number,y\n1,0.5\n"),
            r"2.csv differs from the first shard .*'0.5'",
        ),
        ("tar", lambda path: path.write_bytes(as_tar([])), "tar has no samples"),
        (
            "tar",
            lambda path: path.write_bytes(gzip.compress(path.read_bytes())),
            "tar is no tar archive .*compressed",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    kind: str, change: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    shards = written(str(tmp_path / "shards"), kind)
    suffix = {"litdata": "bin", "litdata_zstd": "bin", "mds_zstd": "zstd"}.get(kind, kind)
    change(max((tmp_path / "shards").glob(f"*.{suffix}")))
    with pytest.raises(DataError, match=message):
        read_all(shards.replace(f"*.{kind}", "*"), tmp_path)


def read_all(shards: str, folder: Path) -> list[dict[str, Any]]:
    url, manifest = opened(shards, str(folder / "data"), partitions=2)
    return rows_in(url, manifest, PartitionCache(folder / "cache", make=make_columns))


def compressed(index: Path) -> None:
    known = json.loads(index.read_text())
    known["config"]["compression"] = "zstd"
    index.write_text(json.dumps(known))


def test_a_folder_of_train_and_val_has_both(tmp_path: Path) -> None:
    for split in ("train", "val"):
        shutil.copytree(MADE_BY_OTHERS / "mds", tmp_path / "shards" / split)
    _, manifest = opened(str(tmp_path / "shards"), str(tmp_path / "data"), partitions=2, valid=0.2)
    assert (sum(manifest.rows), sum(files.rows for files in manifest.valid)) == (10, 10)
