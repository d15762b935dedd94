"""What a unit takes of its node: CPU, memory, and the GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.reporting.tables import resources_text
from cerebro_elastic.system import devices
from cerebro_elastic.worker import resources
from cerebro_elastic.worker.resources import ResourceMeter
from support.clocks import HandClock


class Cuda:
    """A GPU that is busier each time that it is asked."""

    def __init__(self) -> None:
        self.shares = iter((20, 60, 90))

    def reset_peak_memory_stats(self, device: str) -> None:
        assert device == "cuda:1"

    def max_memory_allocated(self, _device: str) -> int:
        return 7 * 10**9

    def utilization(self, _device: str) -> int:
        return next(self.shares)


def test_a_units_resources_are_those_of_its_rank_and_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    monkeypatch.setattr(devices, "_module", lambda _device: cuda)
    clock, beats = HandClock(), list[float]()
    meter = ResourceMeter("cuda:1", clock)
    beat = meter.watching(lambda: beats.append(clock.now()))
    meter.begin()
    for _ in range(4):
        clock.sleep(0.5)
        beat()
    taken = meter.end()
    assert len(beats) == 4
    assert (taken.gpu, taken.gpu_bytes) == (0.4, 7 * 10**9), "the mean of 0.2 and 0.6, asked once a second"
    assert (
        resources_text(replace(taken, cpu=0.984, memory_bytes=512 * 10**6))
        == "cpu 98%, 512 MB; gpu 40%, 7 GB"
    )

    def unknown(_device: str) -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr(cuda, "utilization", unknown)
    monkeypatch.setattr(resources, "_known", {True})
    meter = ResourceMeter("cuda:1", clock)
    meter.begin()
    clock.sleep(1.0)
    assert resources_text(replace(meter.end(), cpu=1.5, memory_bytes=10**9)) == "cpu 150%, 1 GB; gpu 7 GB"
