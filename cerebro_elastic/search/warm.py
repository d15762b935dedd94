"""The configs of other runs as samplers see them."""

from __future__ import annotations

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.recipes.search import KnownConfig


def view_of(config: KnownConfig) -> ConfigView:
    """The view of an ended config. Its units are its epochs: samplers do not use the number of partitions."""
    curve = [Point(epoch, epoch, metrics, ends=True) for epoch, metrics in enumerate(config.curve, start=1)]
    return ConfigView(
        config="",
        hparams=config.hparams,
        status=Status.FINISHED if config.finished else Status.STOPPED,
        epochs=len(curve),
        units=len(curve),
        curve=curve,
        origin={"space": dict(config.space)} if config.space else {},
    )
