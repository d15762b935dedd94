"""The installed version, and the systems that it runs on. Separate from ``cerebro_elastic/__init__.py``,
which imports the modules that use it."""

import sys
from importlib.metadata import version

__version__ = version("cerebro-elastic")


def check_system() -> None:
    """Raise ``RunError`` on macOS and Windows, where modules of Python are missing that all parts import."""
    if sys.platform != "linux":
        from cerebro_elastic.errors import RunError  # every process that imports torch imports this file

        raise RunError(
            f"cerebro-elastic runs on Linux only, and this is {sys.platform}: use a Linux machine, a "
            "container (the Dockerfile of the checkout makes one) or, on Windows, WSL2"
        )
