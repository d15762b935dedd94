"""Lightning's loggers for a run: one for each config, whose steps continue from node to node."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import loggers as stock
from lightning.pytorch.loggers.logger import Logger

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.logging import ConfigEnd, Logged
from cerebro_elastic.extending.recipes import named_class
from cerebro_lightning._lightning_internals import AppendingWriter, set_writer

_KNOWN = {
    **dict.fromkeys(("tensorboard", "mlflow", "wandb")),  # the package's own, which get here by error only
    **{name: getattr(stock, name) for name in stock.__all__ if name != "Logger"},
}


class LightningLoggers:
    """The loggers that ``specs`` name, for configs of ``run``; users' own are looked for in ``root`` first,
    files go below ``folder``.

    A spec is a name of one of Lightning's loggers or ``module:name``, alone or as ``{"class": name, "args":
    {...}}``. ``{run}`` and ``{config}`` in the texts of ``args`` are replaced. A logger also gets these
    arguments if it takes them and ``args`` lacks them: ``save_dir`` is ``folder``, ``name`` the run's id and
    ``version`` the config's.
    """

    def __init__(
        self, specs: Sequence[str | Mapping[str, Any]], run: str, root: str | Path, folder: str | Path
    ) -> None:
        self._factories = [named_class(spec, _KNOWN, Path(root), "loggers", "Lightning's") for spec in specs]
        self._run = run
        self._folder = folder
        self._made: dict[str, list[Logger]] = {}
        self._failed: set[str] = set()

    def write(self, logged: Logged) -> None:
        for logger in self._loggers(logged):
            for row in logged.rows:
                logger.log_metrics({n: v for n, v in row.items() if n != "step"}, step=int(row["step"]))
            logger.save()

    def end(self, end: ConfigEnd) -> None:
        if end.status == "failed":
            self._failed.add(end.config)

    def close(self) -> None:
        for config, loggers in self._made.items():
            for logger in loggers:
                logger.finalize("failed" if config in self._failed else "success")

    def _loggers(self, logged: Logged) -> list[Logger]:
        if logged.config not in self._made:
            self._made[logged.config] = [self._make(*factory, logged.config) for factory in self._factories]
            for logger in self._made[logged.config]:
                logger.log_hyperparams(dict(logged.hparams))
        return self._made[logged.config]

    def _make(self, factory: Any, args: Mapping[str, Any], config: str) -> Logger:
        names = {"run": self._run, "config": config}
        usual = {"save_dir": str(self._folder), "name": self._run, "version": config}
        takes = inspect.signature(factory).parameters
        given = {name: _filled(value, names) for name, value in args.items()}
        logger = factory(**{name: value for name, value in usual.items() if name in takes} | given)
        if not isinstance(logger, Logger):
            raise TaskError(
                f"loggers: {factory} gives a {type(logger).__name__}, expected a Lightning Logger"
            )
        if isinstance(logger, stock.CSVLogger):
            set_writer(logger, AppendingWriter(logger.log_dir))
        return logger


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    """Does not use ``format``: a text may have other braces."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
    return value
