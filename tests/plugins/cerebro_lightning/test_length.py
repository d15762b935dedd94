"""A config continues after its last epoch as if that had not been the last; code for which that differs is
named."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import lightning as L
import pytest
from lightning_harness import FOLDER, Case, differences, hop, job, units, units_from

from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection


class Plain(Case):
    """Without the harness's callback that notes all hooks, which acts at a training's end."""

    @property
    def section(self) -> LightningSection:
        module = self.module if ":" in self.module else f"lightning_zoo:{self.module}"
        return LightningSection.model_construct(
            module=module, args={}, trainer=dict(self.trainer), callbacks=tuple(self.callbacks)
        )


def readers(case: Case) -> Sequence[str]:
    """The readers that a case of two epochs names when it is to have three."""
    short = dataclasses.replace(case, orders=case.orders[:2])
    jobs = [job(short, 0, position, None) for position in range(3)]
    return LightningTask(case.section, FOLDER).length_readers(jobs, (), 3)


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
    assert readers(case) == []
    *_, (_, last) = units(dataclasses.replace(case, orders=case.orders[:2]))
    *_, (_, extended) = units_from(case, 6, hop(last.state))
    *_, (_, longer) = units(case)
    assert not differences(longer.state, extended.state)
    assert longer.metrics == extended.metrics


ACTED = "has acted at the end of epoch 2, which would not have been the last one"
NAMED = {
    "a schedule over all steps": (
        Plain("OneCycle"),
        "lightning_zoo:OneCycle.configure_optimizers reads trainer.estimated_stepping_batches",
    ),
    "a training step": (
        Plain("length_zoo:Anneals"),
        "length_zoo:Anneals.training_step reads trainer.max_epochs (2, it would be 3)",
    ),
    "at an epoch's end": (
        Plain("length_zoo:Ends"),
        "length_zoo:Ends.on_train_epoch_end reads trainer.max_epochs (2, it would be 3)",
    ),
    "an average at the end": (
        Plain("Net", callbacks=["EMAWeightAveraging"]),
        f"EMAWeightAveraging.on_train_end {ACTED}",
    ),
    "its own last act": (
        Plain("length_zoo:Finale"),
        f"Finale.on_train_end {ACTED}",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_code_that_depends_on_the_length_is_named(name: str) -> None:
    case, text = NAMED[name]
    plain = vars(L.Trainer)["max_epochs"]
    assert list(readers(case)) == [text]
    assert vars(L.Trainer)["max_epochs"] is plain
