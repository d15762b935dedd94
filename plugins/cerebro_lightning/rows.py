"""The logger of a unit: it keeps the rows that the module logs, as ``CSVLogger`` would have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import DummyLogger, Logger


class RowLogger(Logger):
    """Rows are ``{"epoch", metrics..., "step"}``. While ``muted``, nothing is kept: the hooks that fire
    anew for every unit (``on_fit_start``, ``on_train_start``) have logged in the config's first one."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []
        self.muted = False
        self._epoch = epoch

    @property
    def name(self) -> str:
        return "cerebro"

    @property
    def version(self) -> int:
        return 0

    @property
    def save_dir(self) -> str:
        """The process's working directory, so that ``trainer.log_dir`` exists: a folder on the unit's
        node."""
        return str(Path.cwd())

    log_dir = root_dir = save_dir

    @property
    def experiment(self) -> Any:
        """Accepts and drops what users log without ``self.log``: images, histograms, graphs."""
        return DummyLogger().experiment

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if not self.muted:
            values = {name: float(value) for name, value in metrics.items()}
            self.rows.append({"epoch": self._epoch, **values, "step": step or 0})

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Does nothing: the run has the config's hyper-parameters."""
