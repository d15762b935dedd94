"""The installed version. Apart from the package's face, which imports what uses it."""

from importlib.metadata import version

__version__ = version("cerebro-elastic")
