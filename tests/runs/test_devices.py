"""Which GPUs a machine has, and which of them a node sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.runs.start.agents import share_devices, visible_devices


def test_devices_are_counted_by_their_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia6", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert visible_devices({}, tmp_path) == ("0", "1")
    assert visible_devices({}, tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("named", "devices"), [("", ()), ("3", ("3",)), ("GPU-1f, GPU-2e", ("GPU-1f", "GPU-2e"))]
)
def test_devices_named_in_the_environment_come_first(
    tmp_path: Path, named: str, devices: tuple[str, ...]
) -> None:
    (tmp_path / "nvidia0").touch()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": named}, tmp_path) == devices


@pytest.mark.parametrize(
    ("devices", "nodes", "shares"),
    [
        ("", 2, [(), ()]),
        ("0123", 1, [("0", "1", "2", "3")]),
        ("0123", 2, [("0", "1"), ("2", "3")]),
        ("01234", 2, [("0", "1"), ("2", "3")]),
        ("0123", 4, [("0",), ("1",), ("2",), ("3",)]),
        ("01", 3, [("0",), ("1",), ("0",)]),
    ],
)
def test_nodes_share_evenly(devices: str, nodes: int, shares: list[tuple[str, ...]]) -> None:
    assert share_devices(tuple(devices), nodes) == shares
