"""Faults of the store, injected between a real store and its user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, cast

from cerebro_elastic.errors import TxnUnknown
from cerebro_elastic.store.client.base import Compare, Op, Store, TxnResult


class Lost(Enum):
    """The lost part of a transaction: its request, so that it never happens, or its answer."""

    REQUEST = "request"
    ANSWER = "answer"


def losing(store: Store, fault: Callable[[], Lost | None]) -> Store:
    """``store``, but ``fault`` decides for each transaction which part gets lost; its sender sees
    ``TxnUnknown`` either way."""
    return cast(Store, _Losing(store, fault))


class _Losing:
    def __init__(self, store: Store, fault: Callable[[], Lost | None]) -> None:
        self._store = store
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        lost = self._fault()
        if lost is Lost.REQUEST:
            raise TxnUnknown("the request was lost")
        result = self._store.txn(compares, ops)
        if lost is Lost.ANSWER:
            raise TxnUnknown("the answer was lost")
        return result
