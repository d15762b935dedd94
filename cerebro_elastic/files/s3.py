"""What s3fs needs to be told, and what it says. Imported only where an s3:// URL is used."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import fsspec.config
from botocore.exceptions import BotoCoreError, ConnectionError, HTTPClientError
from botocore.parsers import ResponseParserError

from cerebro_elastic.files.trouble import Trouble

PROTOCOLS = ("s3", "s3a")

_CLIENT = {
    "connect_timeout": 10,
    "read_timeout": 30,
    # Each request, also a part of an upload; s3fs and botocore by default make up to 25 tries of one.
    "retries": {"mode": "standard", "total_max_attempts": 3},
}

_FULL = {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
"""Codes of Ceph and MinIO; Amazon knows no full bucket."""

_REFUSED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "RequestExpired"}
_PASSING = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "OperationAborted"}


def options() -> dict[str, Any]:
    """Timeouts and tries of each request; what the user's fsspec configuration says goes before."""
    users = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
    return {"config_kwargs": copy.deepcopy({**_CLIENT, **users})}


def trouble_of(error: Exception) -> Trouble | None:
    """What the server, or botocore without an answer of it, says; ``None`` if neither says trouble."""
    for link in _chain(error):
        answer = getattr(link, "response", None)
        if isinstance(answer, Mapping):
            return _of_answer(
                str(answer.get("Error", {}).get("Code", "")),
                int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
            )
        if isinstance(link, ConnectionError | HTTPClientError | ResponseParserError) or _of_aiohttp(link):
            return Trouble.PASSING
        if isinstance(link, BotoCoreError):  # no credentials, no region, ...
            return Trouble.REFUSED
    return None


def _of_answer(code: str, status: int) -> Trouble | None:
    if code in _FULL or status == 507:
        return Trouble.FULL
    if code in _PASSING or status in (408, 425, 429) or status >= 500:
        return Trouble.PASSING
    # The answer to a HEAD request has no body: an expired token looks like any other bad request.
    if code in _REFUSED or status in (401, 403) or code == "400":
        return Trouble.REFUSED
    return None if status in (404, 412) else Trouble.LASTING


def _of_aiohttp(error: BaseException) -> bool:
    import aiohttp

    return isinstance(error, aiohttp.ClientError)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
