"""Private names of LightGBM. Tried with LightGBM 4.7; the test of a misspelt parameter guards them."""

from __future__ import annotations

import lightgbm


def known_parameters() -> frozenset[str]:
    """The library's parameters and their aliases. It lists them nowhere else."""
    aliases = lightgbm.basic._ConfigAliases._get_all_param_aliases()
    return frozenset(name for names in aliases.values() for name in names)
