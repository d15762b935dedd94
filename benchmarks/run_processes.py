"""The processes of a run on this machine, by kind."""

from __future__ import annotations

import psutil

KINDS = {"forkserver": "imports", "distributed.run": "agents", "worker": "ranks", "/etcd ": "etcd"}
"""Kinds of processes, by what their commands contain; the first that fits."""


def family(pid: int) -> list[psutil.Process]:
    """The process and all that descends from it; empty if it has ended."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return []


def kind_of(process: psutil.Process, leader: int) -> str:
    """``leader``, one of ``KINDS``, or ``others``. Raises ``psutil.Error`` if it has ended."""
    command = " ".join(process.cmdline())
    if process.pid == leader:
        return "leader"
    return next((kind for mark, kind in KINDS.items() if mark in command), "others")
