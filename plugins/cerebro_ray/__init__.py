"""Runs on a Ray cluster: Ray gives the machines, and each runs ``cerebro host``; and Ray Data as a source."""

from __future__ import annotations

from cerebro_ray.driver import run

__all__ = ["run"]
