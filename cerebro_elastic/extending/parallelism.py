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
    Stepwise,
)
from cerebro_elastic.training.parallel.choose import make as make_parallelism
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.construct import made as construct
from cerebro_elastic.training.parallel.data_parallel import (
    Buffers,
    averaged_gradients,
    averaged_step,
    collected,
    portion,
    taken,
)
from cerebro_elastic.training.parallel.ddp import Ddp
from cerebro_elastic.training.parallel.fsdp import Fsdp
from cerebro_elastic.training.parallel.group import subgroup, together
from cerebro_elastic.training.parallel.memory_estimate import Spread, check_room
from cerebro_elastic.training.parallel.single import Single
from cerebro_elastic.training.parallel.wrapping import blocks, repeated

__all__ = [
    "Buffers",
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
    "averaged_step",
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
