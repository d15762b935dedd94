"""The chain over a record's lines: each bears a digest of itself and of all lines before it.

So whoever has noted one digest can tell whether any line before it was changed since. The digest is the last
key of the line's JSON object; what it covers is the rest of the line, byte for byte.
"""

from __future__ import annotations

import hashlib
import re

_DIGEST = re.compile(r',\s*"chain":\s*"([0-9a-f]{64})"\s*}\s*$')


def link(previous: str, body: str) -> str:
    """The digest of a line of this ``body`` behind one of the digest ``previous`` ("" before the first)."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def joined(body: str, digest: str) -> str:
    """The line of an event's JSON and its digest."""
    return f'{body[:-1]},"chain":"{digest}"}}'


def parted(line: str) -> tuple[str, str | None]:
    """The event's JSON and the digest of a line; lines of earlier versions of this package have none."""
    found = _DIGEST.search(line)
    return (line, None) if found is None else (line[: found.start()] + "}", found[1])
