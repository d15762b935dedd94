"""The command ``cerebro``."""

from __future__ import annotations

import io
import os
import sys

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.words import for_commands, visible


def main() -> None:
    """Run a command. A ``CerebroError`` becomes one message and a non-zero exit status, never a traceback."""
    _prepare_streams()
    try:
        from cerebro_elastic.cli.app import app

        with for_commands():
            app(prog_name="cerebro")
    except CerebroError as error:
        print(visible(f"error: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)


def _prepare_streams() -> None:
    """Make the standard streams take any text. One that is closed goes nowhere: a file that is opened later
    must not get its number, and with it what others print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
