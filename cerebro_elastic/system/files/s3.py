"""S3: the options of s3fs, the faults that its exceptions show, and uploads that can be continued.

Imported only where an s3:// URL is used: botocore is heavy.
"""

from __future__ import annotations

import copy
import hashlib
import random
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import aiohttp.connector
import botocore.retries.standard
import botocore.retryhandler
import botocore.utils
import fsspec.config
from aiobotocore.httpsession import AIOHTTPSession
from aiohttp import AddrInfoType
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.parsers import ResponseParserError

from cerebro_elastic.errors import causes
from cerebro_elastic.system.files.content import Chunk, Content, Hashing, Sha256
from cerebro_elastic.system.files.faults import StorageFault, chance

for _module in (botocore.retryhandler, botocore.retries.standard, botocore.utils, aiohttp.connector):
    vars(_module)["random"] = chance
_backoff = botocore.retries.standard.ExponentialBackoff.__init__
_backoff.__defaults__ = tuple(chance.random if it is random.random else it for it in _backoff.__defaults__)

_SENT_MILLISECONDS = 10_000
"""How long sent bytes may stay without the server's receipt; aiohttp limits the wait for an answer only."""


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SENT_MILLISECONDS)
    return opened


class _Session(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore has no types
    """Has no upload wait for the server's permission to send: aiohttp waits for that without a limit."""

    async def send(self, request: Any) -> Any:
        request.headers.pop("Expect", None)
        return await super().send(request)


_CLIENT = {
    "connect_timeout": 10,
    "read_timeout": 30,
    "connector_args": {"socket_factory": _socket},
    "http_session_cls": _Session,
    # Each request, also a part of an upload; s3fs and botocore by default make up to 25 tries of one.
    "retries": {"mode": "standard", "total_max_attempts": 3},
}

_FULL = {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
"""Codes of Ceph and MinIO; Amazon's buckets are never full."""

_REFUSED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "RequestExpired"}
_ON_THE_WAY = (
    ConnectionError,
    HTTPClientError,
    ResponseParserError,
    # Half an answer that comes as if it was all.
    ChecksumError,
    FlexibleChecksumError,
    IncompleteReadError,
)
_PASSING = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "OperationAborted"}


def options() -> dict[str, Any]:
    """Timeouts and tries of each request. The user's fsspec configuration overrides them."""
    users = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
    return {"config_kwargs": copy.deepcopy({**_CLIENT, **users})}


def fault_of(error: Exception) -> StorageFault | None:
    """The fault that an answer of the server shows, or botocore without one; ``None`` if neither does."""
    for link in causes(error):
        answer = getattr(link, "response", None)
        if isinstance(answer, Mapping):
            return _of_answer(
                str(answer.get("Error", {}).get("Code", "")),
                int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
            )
        if isinstance(link, _ON_THE_WAY) or _of_aiohttp(link):
            return StorageFault.PASSING
        if isinstance(link, BotoCoreError):  # no credentials, no region, ...
            return StorageFault.REFUSED
    return None


def _of_answer(code: str, status: int) -> StorageFault | None:
    if code in _FULL or status == 507:
        return StorageFault.FULL
    if code in _PASSING or status in (408, 425, 429) or status >= 500:
        return StorageFault.PASSING
    # The answer to a HEAD request has no body: an expired token looks like any other bad request.
    if code in _REFUSED or status in (401, 403) or code == "400":
        return StorageFault.REFUSED
    return None if status in (404, 412) else StorageFault.LASTING


def clock_ahead(error: Exception) -> float | None:
    """By how many seconds this machine's clock is ahead of the server's, by the answer that ``error`` has."""
    for link in causes(error):
        answer = getattr(link, "response", None)
        if isinstance(answer, Mapping):
            date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
            with suppress(TypeError, ValueError):
                return datetime.now().timestamp() - parsedate_to_datetime(date).timestamp()
    return None


def _of_aiohttp(error: BaseException) -> bool:
    import aiohttp

    return isinstance(error, aiohttp.ClientError)


_PART = 16 << 20
"""Bytes of a part."""
_PARTS_AT_ONCE = 3
"""The number of parts that are on their way while the next one is prepared."""
_GROWS = 1000
"""The number of parts after which parts grow: S3 allows 10 000 of them, of 5 MB at least."""


@dataclass(slots=True)
class Upload:
    """An upload that continues from the part at which it was cut off.

    The object is visible when a call has returned. A call that failed may be repeated: parts that the server
    has, and that are the same still, are not sent again.
    """

    path: str
    """Bucket and key."""
    data: Iterable[Chunk]
    """The object's bytes; each call goes over them again."""
    hashing: Hashing = Sha256
    """Hashes them."""
    _id: str | None = None
    _sent: dict[int, tuple[bytes, str]] = field(default_factory=dict)

    def __call__(self, fs: Any) -> Content:
        try:
            return self._upload(fs)
        except Exception as exc:
            if self._id is None or not _unknown_upload(exc):
                raise
        # Completed by a request whose answer was lost, or cleared away by the server: in both cases it starts
        # again.
        self._id, self._sent = None, {}
        return self._upload(fs)

    def abort(self, fs: Any) -> None:
        """Have the server forget the parts, if it can be reached."""
        if self._id is not None:
            with suppress(Exception):
                fs.call_s3("abort_multipart_upload", **self._object(fs), UploadId=self._id)

    def _upload(self, fs: Any) -> Content:
        with self.hashing() as sha256:
            number = 0
            sending: deque[Future[None]] = deque()
            with ThreadPoolExecutor(_PARTS_AT_ONCE) as threads:
                for part, last in _parts(self.data, sha256):
                    number += 1
                    if last and number == 1:
                        fs.call_s3("put_object", **self._object(fs), Body=part)
                    else:
                        if self._id is None:
                            self._id = fs.call_s3("create_multipart_upload", **self._object(fs))["UploadId"]
                        if len(sending) == _PARTS_AT_ONCE:
                            sending.popleft().result()
                        sending.append(threads.submit(self._send, fs, number, part))
                for sent in sending:
                    sent.result()
            written = sha256.content()
        if number > 1:
            self._complete(fs, number)
        return written

    def _send(self, fs: Any, number: int, part: bytes) -> None:
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


def create(fs: Any, path: str, data: bytes) -> bool:
    """Write an object unless its name exists; returns whether it was written."""
    bucket, key, _ = fs.split_path(path)
    put = partial(fs.call_s3, "put_object", Bucket=bucket, Key=key, Body=data)
    try:
        put(IfNoneMatch="*")
    except Exception as exc:
        answers = (getattr(link, "response", None) for link in causes(exc))
        codes = {a.get("Error", {}).get("Code") for a in answers if isinstance(a, Mapping)}
        if codes & {"PreconditionFailed", "ConditionalRequestConflict"}:
            return False
        if "NotImplemented" not in codes:  # the answer of a storage that does not support the header
            raise
        if fs.exists(path):
            return False
        put()
    return True


def _parts(data: Iterable[Chunk], sha256: Sha256) -> Iterator[tuple[bytes, bool]]:
    """``data`` in parts of the sizes that S3 wants, each with whether it is the last."""
    buffer, number = bytearray(), 0
    for chunk in data:
        sha256.update(chunk)
        buffer += chunk
        while len(buffer) > (size := _PART * (1 + number // _GROWS)):
            yield bytes(buffer[:size]), False
            del buffer[:size]
            number += 1
    yield bytes(buffer), True


def _unknown_upload(error: Exception) -> bool:
    answers = (getattr(link, "response", None) for link in causes(error))
    return any(isinstance(a, dict) and a.get("Error", {}).get("Code") == "NoSuchUpload" for a in answers)
