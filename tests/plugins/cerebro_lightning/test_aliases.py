"""State that a module keeps anywhere hops with its identity, is refused by name, or is scratch."""

from __future__ import annotations

import dataclasses

import alias_zoo
import pytest
from lightning_harness import ORDERS, Case, Stops, differences, ordinary_fit, outcome, units

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.objects import object_graph

CUTS: Stops = {(0, 0): (2,), (1, 0): (1,)}

REFUSED = {
    "Iterators": r"Iterators\.\w+ is a itertools\.cycle: its position",
    "LoaderIterator": r"LoaderIterator\.batches is a .*DataLoaderIter: its position",
    "ReplacedFunction": r"ReplacedFunction\.function, a function, has changed during training",
    "Table": r"Table\.table, a DataFrame, has changed during training",
    "Buffers": r"Buffers\.bytes, a bytearray, has changed during training",
    "Weak": r"Weak\.calls, a WeakKeyDictionary, has changed during training",
    "Globals": r"alias_zoo\.TABLE, alias_zoo\.ARRAY, alias_zoo\.STEPS changed in training",
    "ClassAttribute": r"alias_zoo\.ClassAttribute\.\w+.* changed in training",
    "Defaults": r"alias_zoo\.remembering.* changed in training",
    "CountsInConstructor": r"alias_zoo\.CountsInConstructor\.made changed in training",
    "SetsDtype": r"torch\.set_default_dtype changed from torch\.float32 to torch\.float64 in training",
    "WalksThrough": r"walks through the training batches itself \(trainer\.train_dataloader\)",
    "HookOfOptimizerLater": r"SGD has got or lost a hook during training",
    "HookOfParameterLater": r"net\.0 has got or lost a hook during training .* of weight",
}

SCRATCH = (
    *("HookBeforeDict", "ParameterAttributes", "SchedulerClosure", "Holders", "FirstFunction"),
    *("LargeTable", "LeavesOut"),
)
"""What the next unit lacks. The same values show it as ``cerebro check`` compares."""

CARRIED = [
    name
    for name, kind in vars(alias_zoo).items()
    if isinstance(kind, type)
    and issubclass(kind, alias_zoo.Net)
    and kind not in (alias_zoo.Net, alias_zoo.Keeping)
    and name not in REFUSED
]


@pytest.mark.parametrize("module", CARRIED)
def test_kept_objects_hop_or_are_scratch(module: str) -> None:
    callbacks = ("alias_zoo:Sharing",) if module == "HookWithDict" else ()
    trainer = {"precision": "64-true"} if module == "Sums64" else {}
    case = Case(f"alias_zoo:{module}", trainer=trainer, callbacks=callbacks, orders=ORDERS[:2])
    expected = ordinary_fit(case)
    done = list(units(case, CUTS))
    found = outcome(done)
    for tensors in done[-1][1].state["cerebro"].get("left out", {}).values():
        found.weights.update(tensors)
    parts = [part.name for part in dataclasses.fields(expected)]
    differ = [d for name in parts for d in differences(getattr(expected, name), getattr(found, name), name)]
    assert bool(differ) == (module in SCRATCH), differ


@pytest.mark.parametrize(("module", "message"), REFUSED.items(), ids=REFUSED)
def test_state_that_cannot_hop_is_refused_by_name(module: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        list(units(Case(f"alias_zoo:{module}", orders=ORDERS[:1])))


def test_what_is_left_out_is_noted_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_graph, "_noted", set())
    with caplog.at_level("INFO", "cerebro"):
        list(units(Case("alias_zoo:NewFunction", orders=ORDERS[:1])))
    assert [record.fields["name"] for record in caplog.records if hasattr(record, "fields")] == [
        "NewFunction.function"
    ]


def test_files_are_as_they_were_imported_after_a_unit() -> None:
    for module in ("Globals", "ClassAttribute", "Defaults"):
        with pytest.raises(TaskError):
            list(units(Case(f"alias_zoo:{module}", orders=ORDERS[:1])))
    assert alias_zoo.STEPS == 0
    assert alias_zoo.TABLE["n"] == 0
    assert not alias_zoo.TABLE["total"].any()
    assert not alias_zoo.ARRAY.any()
    assert (alias_zoo.ClassAttribute.steps, alias_zoo.ClassAttribute.table) == (0, {})
    assert alias_zoo.remembering.__defaults__ == ([],)
