"""What has an earlier run made that need not be made again? Results of units have names.

A unit is a pure function of what it reads. What all units of a run read (code, data, recipe, versions) is
compared when a run is opened (``runs/start/reuse.py``). The rest is where a config stands: its
hyper-parameters and its state. A config's id is no part of it, nor is the order of the configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.origin import values_digest

FOLDER = "reused-"
"""How the folders of checkpoints and logs begin that a run has taken over. (Those of configs: c0000, ...)"""


@dataclass(frozen=True, slots=True)
class Reusable:
    """What a run may take over from earlier runs, as found when it was opened."""

    steps: Mapping[str, tuple[Visit, ...]] = field(default_factory=dict)
    """By the name of where a config stands (``standing``): the visits that an equal config has made from
    there, up to the next state that is there to begin from."""


NOTHING = Reusable()


def standing(config: Config) -> str:
    """The name of where a config stands: equal configs in the same state have the same, in every run."""
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
