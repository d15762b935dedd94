"""What users' code reads, beside itself."""

from __future__ import annotations

import os
from pathlib import Path

from cerebro_elastic.system.source_code import OF_FILE, read_by


def test_a_large_file_that_code_names_counts_by_its_size_and_last_change(tmp_path: Path) -> None:
    """Its 300 GiB, all of them a hole, are not read."""
    code, rows = tmp_path / "my_data.py", tmp_path / "rows.csv"
    code.write_text('rows = open("rows.csv")\n')
    rows.touch()
    os.truncate(rows, 300 << 30)

    def seen() -> dict[str, str]:
        return dict(read_by([code], tmp_path))

    before = seen()
    assert list(before) == [f"{OF_FILE}rows.csv"]
    assert seen() == before
    os.truncate(rows, (300 << 30) + 1)
    assert seen() != before
