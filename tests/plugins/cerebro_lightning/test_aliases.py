"""State that a module keeps anywhere hops with its identity, or is refused by name."""

from __future__ import annotations

import dataclasses

import alias_zoo
import pytest
from lightning_harness import FOLDER, ORDERS, Case, Stops, differences, ordinary_fit, outcome, units

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.objects.user_files import UserFiles

CUTS: Stops = {(0, 0): (2,), (1, 0): (1,)}

REFUSED = {
    "Generators": r"Generators\.stream, a generator, has changed during training",
    "NewFunction": r"NewFunction\.function was set to a function during training",
    "Table": r"Table\.table, a DataFrame, has changed during training",
    "LargeTable": r"LargeTable\.table, a DataFrame, has changed during training",
    "LoaderIterator": r"LoaderIterator\.batches is a .*DataLoaderIter: whether .* cannot be seen",
    "UnseenQueue": r"UnseenQueue\.queue is a multiprocessing.*Queue: whether .* cannot be seen",
    "WalksThrough": r"walks through the training batches itself \(trainer\.train_dataloader\)",
    "HookOfOptimizerLater": r"SGD has got or lost a hook during training",
    "HookOfParameterLater": r"net\.0 has got or lost a hook during training .* of weight",
}

HOPS = [
    name
    for name, kind in vars(alias_zoo).items()
    if isinstance(kind, type)
    and issubclass(kind, alias_zoo.Net)
    and kind not in (alias_zoo.Net, alias_zoo.Keeping)
    and name not in REFUSED
]


@pytest.mark.parametrize("module", HOPS)
def test_kept_objects_hop(module: str) -> None:
    callbacks = ("alias_zoo:Sharing",) if module == "HookWithDict" else ()
    trainer = {"precision": "64-true"} if module == "Sums64" else {}
    case = Case(f"alias_zoo:{module}", trainer=trainer, callbacks=callbacks, orders=ORDERS[:2])
    with UserFiles(FOLDER).borrowed():
        expected = ordinary_fit(case)
    done = list(units(case, CUTS))
    found = outcome(done)
    for tensors in done[-1][1].state["cerebro"].get("left out", {}).values():
        found.weights.update(tensors)
    for part in dataclasses.fields(expected):
        assert not differences(getattr(expected, part.name), getattr(found, part.name), part.name)


@pytest.mark.parametrize(("module", "message"), REFUSED.items(), ids=REFUSED)
def test_state_that_cannot_hop_is_refused_by_name(module: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        list(units(Case(f"alias_zoo:{module}", orders=ORDERS[:1])))


def test_files_are_as_they_were_imported_after_a_unit() -> None:
    list(units(Case("alias_zoo:Globals", orders=ORDERS[:1])))
    list(units(Case("alias_zoo:ClassAttribute", orders=ORDERS[:1])))
    list(units(Case("alias_zoo:Defaults", orders=ORDERS[:1])))
    assert alias_zoo.STEPS == 0
    assert alias_zoo.TABLE["n"] == 0
    assert not alias_zoo.TABLE["total"].any()
    assert not alias_zoo.ARRAY.any()
    assert (alias_zoo.ClassAttribute.steps, alias_zoo.ClassAttribute.table) == (0, {})
    assert alias_zoo.remembering.__defaults__ == ([],)
