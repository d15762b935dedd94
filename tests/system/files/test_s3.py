"""Files on a real S3 server on loopback that has bad days."""

from __future__ import annotations

import random
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from s3fs import S3FileSystem

from cerebro_elastic.data.preparing.sources import read_source
from cerebro_elastic.errors import CerebroError, DiskFull, StorageError
from cerebro_elastic.system.files import (
    Place,
    chunks,
    content,
    create,
    digest,
    exists,
    locate,
    read,
    remove,
    size,
    sizes,
    write,
)
from cerebro_elastic.system.files import place as place_module
from cerebro_elastic.system.files import s3 as s3_module
from support.proxy import Bad, BadProxy, Request

VERBS: dict[str, Callable[[Place], object]] = {
    "read": lambda place: read(place) == b"here",
    "chunks": lambda place: b"".join(chunks(place)) == b"here",
    "exists": exists,
    "size": lambda place: size(place) == 4,
    "sizes": lambda place: sizes(place) == {"bucket/file": 4},
    "write": lambda place: write(place, [b"he", b"re"]) == digest([b"here"]),
    "remove": lambda place: remove(place) or not exists(place),
}


@pytest.fixture
def place(s3: BadProxy) -> Place:
    place = locate("s3://bucket/file")
    write(place, [b"here"])
    s3.requests.clear()
    return place


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "PATIENCE", 0.0)


def test_tries_draw_nothing_from_the_generator_of_units(
    s3: BadProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save is tried again beside the next unit, whose state has that of ``random``'s generator."""
    monkeypatch.setitem(fsspec.config.conf, "s3", {})  # as without a user's configuration
    place = locate("s3://bucket/file")
    before = random.getstate()
    for verb in (lambda: write(place, [b"here"]), lambda: read(place)):
        s3.requests.clear()
        s3.first(5, Bad.SLOW_DOWN)
        verb()
        assert len(s3.requests) >= 6, "botocore has tried again, and so have we"
    assert random.getstate() == before


WITH_ANSWERS = ("read", "chunks", "sizes")
"""Verbs to which the server's answers have a body."""


@pytest.mark.parametrize(
    ("verb", "bad"),
    [
        *((verb, Bad.BROKEN) for verb in VERBS),
        *((verb, bad) for verb in WITH_ANSWERS for bad in (Bad.CUT, Bad.SHORT)),
    ],
)
def test_a_request_that_fails_twice_succeeds_at_the_third(
    s3: BadProxy, place: Place, verb: str, bad: Bad
) -> None:
    s3.first(2, bad, "GET" if bad is Bad.SHORT else "")  # other answers have no half
    assert VERBS[verb](place)
    assert len(s3.requests) > 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("verb", "bad"), [*((verb, Bad.SLOW_DOWN) for verb in VERBS), ("chunks", Bad.HANG), ("write", Bad.HANG)]
)
def test_a_fault_that_stays_is_a_storage_error(s3: BadProxy, place: Place, verb: str, bad: Bad) -> None:
    s3.first(99, bad)
    with pytest.raises(StorageError, match=r"s3://bucket/file: the storage cannot be reached.*network"):
        VERBS[verb](place)


def test_a_full_bucket_is_a_full_disk_and_is_not_retried(s3: BadProxy, place: Place) -> None:
    s3.first(99, Bad.QUOTA)
    with pytest.raises(DiskFull, match="s3://bucket/file: the storage has no space left"):
        write(place, [b"more"])
    assert len(s3.requests) == 1


class Expiring:
    """Answers requests signed with the key ``old`` that the credentials have expired."""

    def __init__(self) -> None:
        self.answers = 0

    def __call__(self, request: Request) -> Bad | None:
        if request.key != "old":
            return None
        self.answers += 1
        return Bad.EXPIRED


@pytest.fixture
def credentials(s3: BadProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:  # noqa: ARG001
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    S3FileSystem.clear_instance_cache()
    write_key(file, "old")
    yield file
    S3FileSystem.clear_instance_cache()


def write_key(file: Path, key: str) -> None:
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = the-secret\n")


def test_expired_credentials_are_read_afresh_once_for_all(s3: BadProxy, credentials: Path) -> None:
    place = locate("s3://bucket/file")
    write(place, [b"here"])
    write_key(credentials, "new")
    s3.plan = expiring = Expiring()
    assert read(place) == b"here"
    answers = expiring.answers
    assert answers, s3.requests
    assert b"".join(chunks(place)) == b"here"
    assert exists(locate("s3://bucket/file"))
    assert expiring.answers == answers


@pytest.mark.parametrize(
    ("seconds", "advice"),
    [
        (8 * 3600 + 120, r"set this machine's clock, which is 8:02 h behind the storage's"),
        (-1200, r"set this machine's clock, which is 0:20 h ahead of the storage's"),
        (60, "renew the credentials of this machine"),
    ],
)
def test_a_clock_that_is_off_is_named_where_the_storage_refuses_access(
    s3: BadProxy, place: Place, monkeypatch: pytest.MonkeyPatch, seconds: float, advice: str
) -> None:
    monkeypatch.setattr(s3, "clock_ahead", seconds)
    for verb in ("size", "write"):  # an answer without a body, and one with
        s3.first(99, Bad.FORBIDDEN)
        with pytest.raises(StorageError, match=f"the storage refuses access: .*; {advice}"):
            VERBS[verb](place)


PART = bytes(1 << 20)
BIG = [PART] * 17
"""More than fits one part of an upload."""


def part_of(request: Request) -> int | None:
    """The number of the part that is sent."""
    found = re.search(r"partNumber=(\d+)", request.path)
    return int(found[1]) if found else None


def parts(s3: BadProxy) -> list[set[int]]:
    """The numbers of the parts of each upload, one upload after the other."""
    uploads: dict[str, set[int]] = {}
    for request in s3.requests:
        upload, part = re.search(r"uploadId=([^&]+)", request.path), part_of(request)
        if upload and part:
            uploads.setdefault(upload[1], set()).add(part)
    return list(uploads.values())


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "_PART", 5 << 20)


@pytest.mark.usefixtures("small_parts")
def test_an_upload_that_was_cut_off_goes_on_from_that_part(s3: BadProxy, place: Place) -> None:
    refused: list[Request] = []

    def plan(request: Request) -> Bad | None:
        if part_of(request) != 3 or len(refused) == 3:  # as often as one call tries it
            return None
        refused.append(request)
        return Bad.BROKEN

    s3.plan = plan
    assert write(place, BIG) == digest(BIG)
    assert content(place) == digest(BIG)
    assert parts(s3) == [{1, 2, 3, 4}]
    assert len(refused) == 3
    assert {part_of(request) for request in s3.requests[refused[-1].number + 1 :]} <= {3, 4, None}


def second_part(request: Request) -> bool:
    return part_of(request) == 2


def end(request: Request) -> bool:
    return request.method == "POST" and "uploadId=" in request.path


@pytest.mark.parametrize(
    ("bad", "where", "uploads"),
    [
        (Bad.LOST, second_part, 1),
        (Bad.LOST, end, 1),
        # The server has thrown the parts away, or forgotten that it has completed them.
        (Bad.CLEARED, second_part, 2),
        (Bad.CLEARED, end, 2),
    ],
)
@pytest.mark.usefixtures("small_parts")
def test_an_upload_whose_answer_or_parts_are_lost_is_whole(
    s3: BadProxy, place: Place, bad: Bad, where: Callable[[Request], bool], uploads: int
) -> None:
    hit: list[Request] = []

    def plan(request: Request) -> Bad | None:
        if hit or not where(request):
            return None
        hit.append(request)
        return bad

    s3.plan = plan
    assert write(place, BIG) == digest(BIG)
    assert content(place) == digest(BIG)
    assert len(parts(s3)) == uploads
    assert parts(s3)[-1] == {1, 2, 3, 4}


def test_a_file_is_created_once(s3: BadProxy, tmp_path: Path) -> None:  # noqa: ARG001
    for url in ("s3://bucket/owner", str(tmp_path / "owner")):
        assert [create(locate(url), text) for text in (b"one", b"other")] == [True, False]
        assert read(locate(url)) == b"one"


@pytest.mark.usefixtures("impatient")
def test_an_upload_that_fails_for_good_leaves_what_was_there(s3: BadProxy, place: Place) -> None:
    s3.plan = lambda request: Bad.BROKEN if part_of(request) else None
    with pytest.raises(StorageError):
        write(place, BIG)
    s3.plan = lambda _request: None
    assert read(place) == b"here"
    assert [request.method for request in s3.requests if "uploadId" in request.path][-1] == "DELETE"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("bad", [Bad.FORBIDDEN, Bad.DROP, Bad.BROKEN], ids=lambda bad: bad.name)
def test_no_error_shows_the_signature_of_a_url(s3: BadProxy, bad: Bad) -> None:
    s3.first(99, bad)
    url = f"{s3.endpoint}/bucket/in.npy?X-Amz-Credential=AKIAABCDEFGHIJKLMNOP&X-Amz-Signature=f00d"
    for source in (url, url.replace("in.npy", "in.json"), url.replace("http://", "http://me:passw0rd@")):
        with pytest.raises(CerebroError) as caught:
            read_source(source)
        shown = "".join(traceback.format_exception(caught.value))
        assert "bucket/in" in shown
        for secret in ("f00d", "AKIA", "passw0rd"):
            assert secret not in shown


def test_missing_credentials_are_reported(credentials: Path) -> None:
    credentials.unlink()
    with pytest.raises(StorageError, match="refuses access: NoCredentialsError"):
        read(locate("s3://bucket/file"))
