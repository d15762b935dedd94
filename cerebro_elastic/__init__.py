"""cerebro-elastic: Model Hopper Parallelism on TorchElastic."""

from importlib.metadata import version

__version__ = version("cerebro-elastic")
