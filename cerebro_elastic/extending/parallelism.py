"""A parallelism spreads a unit over ranks: its interface, the ranks' group, and what parallelisms share."""

from __future__ import annotations

from cerebro_elastic.training.parallel import collectives, group
from cerebro_elastic.training.parallel.base import (
    LossOf,
    Make,
    Parallelism,
    Parts,
    Portion,
    Sharding,
    Spread,
    Stepwise,
    check_room,
    make_parallelism,
)
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.construct import made as construct
from cerebro_elastic.training.parallel.data_parallel import (
    Buffers,
    DataParallel,
    averaged_gradients,
    collected,
    portion,
    taken,
)
from cerebro_elastic.training.parallel.fsdp import Fsdp, blocks, repeated
from cerebro_elastic.training.parallel.group import subgroup, together
from cerebro_elastic.training.parallel.replicated import Ddp, Single

__all__ = [
    "Buffers",
    "DataParallel",
    "Ddp",
    "Fsdp",
    "LossOf",
    "Make",
    "Parallelism",
    "Parts",
    "Portion",
    "Sharding",
    "Single",
    "Spread",
    "Stepwise",
    "averaged_gradients",
    "blocks",
    "check_room",
    "collected",
    "collectives",
    "construct",
    "group",
    "make_parallelism",
    "portion",
    "ranks",
    "repeated",
    "subgroup",
    "taken",
    "together",
]
