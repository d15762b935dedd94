"""Contract tests for authors of plugins.

- ``TaskContract`` (``task_contract``): a task, as a class of tests
- ``StoreContract`` (``store_contract``): a store, as a class of tests
- ``policy_contract``, ``search_contract``, ``tryout``: policies and searches, by functions
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cerebro_elastic.testing.store_contract import StoreContract
    from cerebro_elastic.testing.task_contract import TaskContract

__all__ = ["StoreContract", "TaskContract"]

_HOMES = {"StoreContract": "store_contract", "TaskContract": "task_contract"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
