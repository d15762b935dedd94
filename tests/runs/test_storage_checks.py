"""Storage that does not exist, cannot be reached or refuses access: reported before a run starts, in one
message each."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.data.manifest import is_prepared, read_manifest
from cerebro_elastic.errors import CerebroError, DataError, RecipeError, StorageError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.start.places import find_probe, probe, write_probe
from cerebro_elastic.system.files import locate, sizes
from support.proxy import Bad, BadProxy

RECIPE = {
    "task": {"kind": "torch", "model_fn": "a_net:net", "loss": "mse_loss", "optimizer": "SGD"},
    "data": {"url": "data"},
    "search": {"space": {"lr": [0.1]}},
}
USES = {
    "data": lambda url: read_manifest(f"{url}/data"),
    "checkpoints": write_probe,
    "prepare": lambda url: is_prepared(locate(f"{url}/new")),
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cerebro_elastic.system.files.place.PATIENCE", 0.0)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            Bad.FORBIDDEN,
            r"s3://bucket.*: the storage refuses access.*; renew the credentials of this machine",
        ),
        (Bad.DROP, r"s3://bucket.*: the storage cannot be reached.*; look whether the storage is up"),
    ],
)
def test_storage_that_refuses_access(s3: BadProxy, use: str, bad: Bad, message: str) -> None:
    s3.first(99, bad)
    with pytest.raises(StorageError, match=message) as caught:
        USES[use]("s3://bucket")
    assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("use", "kind", "message"),
    [
        ("data", DataError, r"no dataset at s3://nowhere/data: .*; correct the URL, or prepare it"),
        ("checkpoints", RecipeError, "to s3://nowhere: there is no such bucket; create it, or correct"),
        (
            "prepare",
            DataError,
            "dataset s3://nowhere/new: there is no such bucket; create it, or correct",
        ),
    ],
)
def test_a_bucket_that_is_not_there(
    s3: BadProxy,  # noqa: ARG001
    use: str,
    kind: type[CerebroError],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        USES[use]("s3://nowhere")


@pytest.mark.usefixtures("s3")
def test_writable_storage_is_left_unchanged(tmp_path: Path) -> None:
    for url in ("s3://bucket/checkpoints", str(tmp_path / "checkpoints")):
        with probe(load_recipe({**RECIPE, "checkpoints": url})) as name:
            find_probe(url, name)
        assert sizes(locate(url)) == {}


def test_a_folder_that_may_not_be_written() -> None:
    with pytest.raises(CerebroError, match=r"/proc/nowhere"):
        write_probe("/proc/nowhere")
