"""What other runs have come to, as samplers see it."""

from __future__ import annotations

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.recipes.search import KnownConfig


def standing_of(trial: KnownConfig) -> ConfigView:
    """A config that is over. Its units are its epochs: how many partitions those had is of no interest."""
    curve = [Point(epoch, epoch, metrics, ends=True) for epoch, metrics in enumerate(trial.curve, start=1)]
    return ConfigView(
        config="",
        hparams=trial.hparams,
        status=Status.FINISHED if trial.finished else Status.STOPPED,
        epochs=len(curve),
        units=len(curve),
        curve=curve,
        origin={"space": dict(trial.space)} if trial.space else {},
    )
