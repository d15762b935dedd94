"""Words of messages."""

from __future__ import annotations


def counted(number: int, what: str, many: str | None = None) -> str:
    """``1 node``, ``2 nodes``; ``many`` is the plural if it is not made by an s."""
    return f"{number} {what if number == 1 else many or what + 's'}"
