"""Files on web servers: their parts where the server knows no parts or no lengths, and its refusals."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cerebro_elastic.errors import DiskFull, StorageError
from cerebro_elastic.system.files import CHUNK, Place, chunks, copied, locate, open_read, read_ranges, size
from support.full_disk import room_in_files

CONTENT = bytes(range(256)) * 40


asked: list[str] = []
"""The requests that the server has answered."""


@pytest.fixture(params=["all is well", "no length", "ranges ignored", "ranges refused"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if (name := self.path.rpartition("/")[2]).isdigit():
                self.send_error(int(name))
                return
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            data, status = CONTENT, 200
            if wanted and request.param == "ranges refused":
                self.send_error(416)
                return
            if wanted and request.param == "all is well":
                data, status = CONTENT[int(wanted[1]) : int(wanted[2]) + 1], 206
            self.send_response(status)
            if request.param != "no length":
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield locate(f"http://127.0.0.1:{server.server_port}/{request.param.replace(' ', '-')}")
        server.shutdown()
        thread.join()


def test_parts_of_a_file_are_right_whatever_the_server_knows(place: Place) -> None:
    assert size(place) == len(CONTENT)
    with open_read(place) as file:
        file.seek(-10, 2)
        assert file.read(CHUNK) == CONTENT[-10:]
        file.seek(5)
        assert file.read(7) == CONTENT[5:12]
    assert b"".join(chunks(place)) == CONTENT
    assert read_ranges([place, place], [0, 300], [4, 303]) == [CONTENT[:4], CONTENT[300:303]]


@pytest.mark.parametrize("place", ["all is well"], indirect=True)
@pytest.mark.parametrize(
    ("status", "what"),
    [(401, "refuses access"), (403, "refuses access"), (400, "cannot do it"), (410, "cannot do it")],
)
def test_a_refused_request_is_not_repeated(place: Place, status: int, what: str) -> None:
    asked.clear()
    with pytest.raises(StorageError, match=what):
        read_ranges([place / str(status)], [0], [4])
    assert len(asked) <= 4  # once more with fresh credentials, each time for the size and for the bytes


@pytest.mark.parametrize("place", ["all is well"], indirect=True)
def test_a_full_temporary_folder_is_named_and_not_the_server(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (
        room_in_files(1000),
        pytest.raises(DiskFull, match=rf"^{tmp_path} \(TMPDIR\), where http.* is copied"),
    ):
        copied(place)
    copy = copied(place)
    assert (str(copy), len(b"".join(chunks(copy)))) == (str(place), len(CONTENT))
    del copy
    gc.collect()
    assert not list(tmp_path.iterdir()), "copies are removed, those that failed, too"
