"""A batch is divided without loss, and its weights add up."""

from __future__ import annotations

import pytest

from cerebro_elastic.training.parallel import data_parallel
from cerebro_elastic.training.parallel.base import Portion


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 64])
def test_portions_cover_a_batch_once(monkeypatch: pytest.MonkeyPatch, rows: int, size: int) -> None:
    portions = []
    for rank in range(size):
        monkeypatch.setattr(data_parallel, "ranks", lambda rank=rank: (rank, size))
        portions.append(data_parallel.portion(rows))
    real = [portion for portion in portions if portion.share]
    assert [row for portion in real for row in range(portion.start, portion.stop)] == list(range(rows))
    assert sum(portion.share for portion in portions) == pytest.approx(1.0)
    assert all(portion == Portion(0, 1, 0.0) for portion in portions if not portion.share)
    lengths = {portion.stop - portion.start for portion in real}
    assert max(lengths) - min(lengths) <= 1
