"""The command ``cerebro``."""

from __future__ import annotations

import gc
import io
import os
import sys

from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.system.addresses import at_home
from cerebro_elastic.system.version import check_system
from cerebro_elastic.system.words import for_commands, visible


def main() -> None:
    """Run a command. A ``CerebroError`` becomes one message and a non-zero exit status, never a traceback."""
    _prepare_streams()
    try:
        check_system()
        _run()
    except CerebroError as error:
        print(visible(f"error: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before a command begins
        sys.exit(130)
    finally:
        gc.freeze()  # else the interpreter looks through all objects before it ends: half a second


def _run() -> None:
    from cerebro_elastic.cli.app import app

    try:
        with for_commands():
            app([_at_home(word) for word in sys.argv[1:]], prog_name="cerebro")
    except PermissionError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise RunError(f"{what}: this user has no right to it") from error
    except OSError:  # any file may find the disk full
        from cerebro_elastic.system.files import disk_full_raised

        with disk_full_raised("a file that this command writes"):
            raise


def _at_home(word: str) -> str:
    """``--option=~/file``, which a shell leaves unchanged, with the user's home; and words in quotes."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{at_home(value)}"


def _prepare_streams() -> None:
    """Make the standard streams take any text. A closed one goes to the null device: a file opened later must
    not get its number, and with it the output of others."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
