"""What users' code reads, beside itself."""

from __future__ import annotations

import os
from pathlib import Path

from cerebro_elastic.system.source_code import OF_FILE, read_by


def test_a_large_file_that_code_names_counts_by_its_size_and_last_change(tmp_path: Path) -> None:
    """It is not read: a byte that leaves both as they were is not seen."""
    code, rows = tmp_path / "my_data.py", tmp_path / "rows.csv"
    code.write_text('rows = open("rows.csv")\n')
    rows.touch()
    os.truncate(rows, 300 << 20)

    def seen() -> dict[str, str]:
        return dict(read_by([code], tmp_path))

    before, changed = seen(), rows.stat().st_mtime_ns
    assert list(before) == [f"{OF_FILE}rows.csv"]
    with rows.open("r+b") as file:
        file.write(b"x")
    assert seen() != before, "it was changed later"
    os.utime(rows, ns=(changed, changed))
    assert seen() == before
    os.truncate(rows, (300 << 20) + 1)
    os.utime(rows, ns=(changed, changed))
    assert seen() != before
