"""A config that does not look at its length goes on after its last epoch as if that had not been the last."""

from __future__ import annotations

import dataclasses

import pytest
from lightning_harness import Case, differences, hop, units, units_from

from cerebro_lightning.section import LightningSection


class Plain(Case):
    """Without the harness's callback that notes all hooks, which acts at a training's end."""

    @property
    def section(self) -> LightningSection:
        module = self.module if ":" in self.module else f"lightning_zoo:{self.module}"
        return LightningSection.model_construct(
            module=module, args={}, trainer=dict(self.trainer), callbacks=tuple(self.callbacks)
        )


GOES_ON = {
    "a schedule per epoch": Plain("StepLR"),
    "dropout, accumulating": Plain("Dropout", trainer={"accumulate_grad_batches": 4}),
    "plateau on validation": Plain("Plateau", hparams={"lr": 1.5}),
    "torchmetrics": Plain("Metrics"),
    "a callback with state": Plain("Net", callbacks=["lightning_zoo:Stateful"]),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_it_goes_on_as_if_it_had_been_longer_from_the_start(name: str) -> None:
    case = GOES_ON[name]
    *_, (_, last) = units(dataclasses.replace(case, orders=case.orders[:2]))
    *_, (_, extended) = units_from(case, 6, hop(last.state))
    *_, (_, longer) = units(case)
    assert not differences(longer.state, extended.state)
    assert longer.metrics == extended.metrics
