"""Output to any kind of standard output: printing never ends a command's work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from cerebro_elastic.cli.options import echo
from cerebro_elastic.reporting.terminal import terminal


def show(text: str) -> None:
    terminal(width=60).print(text)


@pytest.mark.parametrize("print_line", [show, echo])
def test_output_that_nobody_reads_any_more_is_dropped(
    print_line: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        for number in range(3):
            print_line(f"line {number}")


@pytest.mark.parametrize(
    ("settings", "closed"),
    [
        ("PYTHONIOENCODING=ascii", ""),
        ("PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C", ""),
        ("", ">&-"),
        ("", "<&- 2>&-"),
    ],
)
def test_a_command_prepares_its_streams(settings: str, closed: str) -> None:
    """No file that is opened later gets the number of a standard stream."""
    code = (
        "import os, sys, cerebro_elastic.cli as cli, typer; cli._prepare_streams(); "
        "number = os.open(os.devnull, os.O_RDONLY); typer.echo('\u2581\udcff'); sys.exit(number < 3)"
    )
    ended = subprocess.run(
        ["sh", "-c", f'exec env {settings} "$0" -c "$1" {closed}', sys.executable, ascii(code)[1:-1]],
        stdout=subprocess.PIPE,
        check=False,
    )
    assert ended.returncode == 0
    assert ended.stdout in (b"??\n", "▁?\n".encode(), b"")
