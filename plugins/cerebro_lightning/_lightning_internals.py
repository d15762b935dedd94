"""Private names of Lightning. Tried with Lightning 2.6.6.

``tests/plugins/cerebro_lightning/test_lightning_internals.py`` names what an upgrade takes away.
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

from lightning.fabric.utilities import registry


def look_once_for_external_callbacks() -> None:
    """Remember which packages offer callbacks. Lightning asks all installed packages in every ``Trainer``,
    and each unit has one: that took 16 ms. The callbacks themselves are made anew for each."""
    registry.entry_points = functools.cache(entry_points)  # type: ignore[attr-defined, assignment]
