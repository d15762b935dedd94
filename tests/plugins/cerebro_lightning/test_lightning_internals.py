"""The private names of Lightning that the plugin uses are still there, and do what they did."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
from lightning.fabric.utilities import registry

from cerebro_lightning._lightning_internals import look_once_for_external_callbacks


class Offered:
    """An entry point of a package that offers callbacks."""

    name = "offered"

    def load(self) -> Any:
        return lambda: [pl.Callback()]


def test_external_callbacks_are_looked_for_once_and_made_for_each_trainer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups: list[str] = []

    def entry_points(*, group: str) -> list[Offered]:
        groups.append(group)
        return [Offered()]

    monkeypatch.setattr(registry, "entry_points", registry.entry_points)  # put back afterwards
    monkeypatch.setattr("cerebro_lightning._lightning_internals.entry_points", entry_points)
    look_once_for_external_callbacks()
    first, second = (pl.Trainer(logger=False, enable_checkpointing=False) for _ in range(2))
    assert groups == ["lightning.pytorch.callbacks_factory"]
    own = [[c for c in vars(trainer)["callbacks"] if type(c) is pl.Callback] for trainer in (first, second)]
    assert [len(callbacks) for callbacks in own] == [1, 1]
    assert own[0][0] is not own[1][0]
