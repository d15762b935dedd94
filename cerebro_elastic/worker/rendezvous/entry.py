"""The entry points of group ``torchrun.handlers``. torch loads it whenever its rendezvous package is
imported, in every process: this module imports nothing before a handler is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandlerCreator, RendezvousParameters
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    from cerebro_elastic.worker.rendezvous.handler import NodeRendezvous


def creator() -> RendezvousHandlerCreator:
    """The creator that torch registers under ``cerebro``."""
    return _create


def _create(params: RendezvousParameters) -> NodeRendezvous:
    from cerebro_elastic.worker.rendezvous.handler import NodeRendezvous

    return NodeRendezvous.from_parameters(params)


def dynamic_creator() -> RendezvousHandlerCreator:
    """The creator that torch registers under ``etcd-v3``."""
    return _create_dynamic


def _create_dynamic(params: RendezvousParameters) -> DynamicRendezvousHandler:
    from cerebro_elastic.worker.rendezvous.dynamic import create

    return create(params)
