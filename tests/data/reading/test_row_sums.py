"""The sums of rows: each byte counts, however the file went by, and as in every release."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_elastic.data.reading.row_sums import _SEGMENT, EqualRowSums, row_sums


def test_the_sums_are_those_of_every_release() -> None:
    assert row_sums(np.arange(6, dtype="<f4").reshape(2, 3)).tolist() == [
        12769523296383270912,
        13109784069428740096,
    ]
    assert row_sums(np.array([0, 1, 255], "u1")).tolist() == [0, 11749869230777074271, 7844113907206577313]
    assert row_sums(np.ones((1, _SEGMENT + 2), "<u8")).tolist() == [15981602598481110540]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (8,), (2, 5), (_SEGMENT * 8 + 3,)], ids=str)
@pytest.mark.parametrize("dtype", ["?", "u1", "<f4", "<c16"])
def test_each_flipped_bit_changes_its_row_and_no_other(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (5, *shape)).astype(dtype)
    before = row_sums(rows)
    for _ in range(40):
        changed = rows.copy()
        data = changed.reshape(-1).view("u1")
        at = rng.integers(len(data))
        data[at] ^= 1 << rng.integers(8)
        assert np.flatnonzero(row_sums(changed) != before).tolist() == [at // (len(data) // 5)]


def test_rows_words_and_folds_that_change_places_are_seen() -> None:
    rows = np.random.default_rng(0).integers(0, 9, (4, 2 * _SEGMENT), dtype=np.uint64)
    before = row_sums(rows)
    for changed in (rows[::-1], rows[:, ::-1], np.roll(rows, 1, 1), np.roll(rows, _SEGMENT, 1)):
        assert (row_sums(np.ascontiguousarray(changed)) != before).all()


@pytest.mark.parametrize("piece", [1, 7, 24, 100, 4096])
def test_a_file_may_go_by_in_any_pieces(piece: int) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    file = bytes(10) + rows.tobytes()
    sums = EqualRowSums(10, 50, 24)
    chunks = [file[start : start + piece] for start in range(0, len(file), piece)]
    assert b"".join(sums.passing(chunks)) == file
    assert (sums.sums == row_sums(rows)).all()
