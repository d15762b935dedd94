"""Uploads to S3 that go on from the part at which they were cut off."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cerebro_elastic.files.content import Chunk, Content, Sha256

_PART = 16 << 20
_GROWS = 1000
"""After so many parts they grow: there may be 10 000 of them, of 5 MB at least."""


@dataclass(slots=True)
class Upload:
    """``data`` as the object at ``path``, which is seen when a call has returned. A call that failed may be
    made again: parts that are there already, and still the same, are not sent once more. Each call goes over
    ``data`` again."""

    path: str
    data: Iterable[Chunk]
    _id: str | None = None
    _sent: dict[int, tuple[bytes, str]] = field(default_factory=dict)

    def __call__(self, fs: Any) -> Content:
        try:
            return self._upload(fs)
        except Exception as exc:
            if self._id is None or not _unknown_upload(exc):
                raise
        # Completed by a request whose answer was lost, or cleared away by the server: what is right in both
        # cases is to begin anew.
        self._id, self._sent = None, {}
        return self._upload(fs)

    def abort(self, fs: Any) -> None:
        """Have the server forget the parts, if it can be reached."""
        if self._id is not None:
            with suppress(Exception):
                fs.call_s3("abort_multipart_upload", **self._object(fs), UploadId=self._id)

    def _upload(self, fs: Any) -> Content:
        with Sha256() as sha256:
            number = 0
            for part, last in _parts(self.data, sha256):
                number += 1
                if last and number == 1:
                    fs.call_s3("put_object", **self._object(fs), Body=part)
                else:
                    self._send(fs, number, part)
            written = sha256.content()
        if number > 1:
            self._complete(fs, number)
        return written

    def _send(self, fs: Any, number: int, part: bytes) -> None:
        if self._id is None:
            self._id = fs.call_s3("create_multipart_upload", **self._object(fs))["UploadId"]
        digest = hashlib.sha256(part).digest()
        known, _ = self._sent.get(number, (b"", ""))
        if known != digest:
            answer = fs.call_s3(
                "upload_part", **self._object(fs), UploadId=self._id, PartNumber=number, Body=part
            )
            self._sent[number] = digest, answer["ETag"]

    def _complete(self, fs: Any, number: int) -> None:
        parts = [{"PartNumber": n, "ETag": self._sent[n][1]} for n in range(1, number + 1)]
        fs.call_s3(
            "complete_multipart_upload",
            **self._object(fs),
            UploadId=self._id,
            MultipartUpload={"Parts": parts},
        )
        self._id = None

    def _object(self, fs: Any) -> dict[str, str]:
        bucket, key, _ = fs.split_path(self.path)
        return {"Bucket": bucket, "Key": key}


def _parts(data: Iterable[Chunk], sha256: Sha256) -> Iterator[tuple[bytes, bool]]:
    """``data`` in parts of the sizes that S3 wants, each with whether it is the last."""
    held, number = bytearray(), 0
    for chunk in data:
        sha256.update(chunk)
        held += chunk
        while len(held) > (size := _PART * (1 + number // _GROWS)):
            yield bytes(held[:size]), False
            del held[:size]
            number += 1
    yield bytes(held), True


def _unknown_upload(error: BaseException | None) -> bool:
    while error is not None:
        answer = getattr(error, "response", None)
        if isinstance(answer, dict) and answer.get("Error", {}).get("Code") == "NoSuchUpload":
            return True
        error = error.__cause__ or error.__context__
    return False
