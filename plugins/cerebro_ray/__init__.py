"""Runs on a Ray cluster: Ray gives the machines, and each runs ``cerebro host``.

``run`` is imported on use, as a host's actor imports this package and needs little of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cerebro_ray.driver import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    if name != "run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cerebro_ray import driver

    return driver.run
