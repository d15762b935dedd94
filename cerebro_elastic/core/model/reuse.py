"""Which results of an earlier run need not be made again? Results of units have names.

A unit is a pure function of its inputs. Those that all units of a run share (code, data, recipe, versions)
are compared when a run is opened (``runs/start/reuse.py``). The others are the config's standing: its
hyper-parameters and its state. A config's id is no part of it, nor is the order of the configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.origin import values_digest

FOLDER = "reused-"
"""The prefix of reused folders of checkpoints and logs. (Those of configs: c0000, ...)"""


@dataclass(frozen=True, slots=True)
class Reusable:
    """The results that a run may reuse from earlier runs, found when it was opened."""

    steps: Mapping[str, tuple[Visit, ...]] = field(default_factory=dict)
    """By the name of a config's standing (``standing``): the visits of an equal config from there, up to the
    next state whose checkpoint exists."""


NOTHING = Reusable()


def standing(config: Config) -> str:
    """The name of a config's standing: equal configs in the same state share it, in every run."""
    part, parent = config.partial_unit, config.parent
    inherits = parent is not None and config.head == parent.checkpoint
    return values_digest(
        {
            "hparams": dict(config.hparams),
            "state": config.head.digest if config.head else None,
            "epoch": config.epoch,
            "visited": config.visited,
            "evaluated": config.evaluated,
            "part": (part.partition, part.batches) if part else None,
            "inherits": dict(parent.hparams) if parent is not None and inherits else None,
            **({"fold": config.fold} if config.fold is not None else {}),
            **({"repeat": config.repeat} if config.repeat else {}),
        }
    )
