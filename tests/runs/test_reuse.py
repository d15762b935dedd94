"""What an earlier run has trained is taken over, and nothing else: of the same code, data and versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import recorded_run
from recorded_run import MODEL, opened, record

from cerebro_elastic import RunResult
from cerebro_elastic.core.model.reuse import Reusable
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs import versions
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.start import reuse
from cerebro_elastic.runs.start.launch import Launch
from cerebro_elastic.runs.start.reuse import read_reusable
from cerebro_elastic.runs.terminal_view import Watcher


def content(result: RunResult) -> dict[str, Any]:
    """What a run has found, by hyper-parameters: all but times, nodes and places."""
    return {
        json.dumps(dict(row.hparams)): (row.status, row.curve, [v.output.digest for v in row.visits])
        for row in result.leaderboard
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run of two configs, two epochs and two partitions."""
    result = record(tmp_path_factory.mktemp("reused"))
    assert len(result.view.trained) == 8
    return result


@pytest.fixture
def home(first: RunResult, tmp_path: Path) -> Iterator[Path]:
    """The home of the first run, which is as it was for the next test: its record names places."""
    place, kept = Path(first.spec.root), tmp_path / "kept"
    shutil.copytree(place, kept)
    yield place
    shutil.rmtree(place)
    shutil.copytree(kept, place)


def found(home: Path, **opening: Any) -> tuple[int, str]:
    """How many units a run that is opened so would take over, and what it says."""
    said = list[str]()
    reusable = read_reusable(opened(home, "looks", **{"reuse": True, "say": said.append, **opening}))
    shutil.rmtree(home / "runs" / "looks")
    return sum(map(len, reusable.steps.values())), "; ".join(said)


def test_an_unchanged_recipe_trains_nothing_and_gives_the_same(home: Path, first: RunResult) -> None:
    again = record(home, "again", reuse=True, search={"space": {"lr": [0.01, 0.1]}})  # in another order
    assert not again.view.trained
    assert content(again) == content(first)
    assert verify(again) == []
    assert all(visit.same for visit in replay(again))
    shutil.rmtree(first.folder.path)  # nothing of the first run is needed any more
    assert verify(again.now()) == []
    third = record(home, "third", reuse=True)
    assert not third.view.trained
    assert verify(third) == []
    assert {visit.reused for visit in third.view.log} == {"recorded"}, "who has trained them stays known"


def test_only_a_new_point_is_trained(home: Path, first: RunResult) -> None:
    more = record(home, "more", reuse=True, search={"space": {"lr": [0.2, 0.1, 0.01]}})
    assert len(more.view.trained) == 4
    before = content(first)
    for hparams, (_, curve, digests) in before.items():
        assert content(more)[hparams][1][:2] == curve
        assert content(more)[hparams][2][:4] == digests
    assert verify(more) == []
    assert all(visit.same for visit in replay(more))
    taken = {name: {visit.reused for visit in row} for name, row in more.view.visits.items()}
    assert taken == {"c0000": {""}, "c0001": {"recorded"}, "c0002": {"recorded"}}


COMMENTED = MODEL.replace("def model(lr):", 'def model(lr):\n    """Says more."""  # and more')
OTHER_TASK = {"kind": "torch", "model_fn": "a_recorded_model:model", "optimizer": "SGD", "loss": "mse_loss"}


@pytest.mark.parametrize(
    ("opening", "units", "why"),
    [
        ({"model": COMMENTED}, 8, "8 units of 2 configs are taken over from run recorded"),
        ({"objective": {"metric": "train_loss", "mode": "min"}}, 8, "run recorded"),
        ({"scheduler": "random", "limits": {"tries": 1}, "keep": "epochs"}, 8, "run recorded"),
        ({"model": MODEL.replace("0.5", "0.4")}, 0, "a_recorded_model.py has changed"),
        ({"seed": 4}, 0, "seed: 3 -> 4"),
        ({"node": {"threads": 2}}, 0, "node.threads: 1 -> 2"),
        ({"task": OTHER_TASK}, 0, "task.loss"),
        ({"reuse": False}, 0, ""),
    ],
)
def test_only_what_a_unit_reads_counts(home: Path, opening: dict[str, Any], units: int, why: str) -> None:
    taken, reasons = found(home, **opening)
    assert taken == units
    assert why in reasons
    assert bool(why) == bool(reasons)


def _damage_the_states(folder: Path) -> None:
    for file in folder.glob("checkpoints/*/*/tensors.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)


def _replace(name: str, before: str, after: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        file = folder / name
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after, 1))

    return harm


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (_damage_the_states, "no earlier run here has trained"),
        (lambda folder: shutil.rmtree(folder / "checkpoints"), "no earlier run here has trained"),
        (_replace("history.jsonl", '"val_loss":0.', '"val_loss":0.0'), "does not verify"),
        (_replace("spec.json", '"data_digest":"', '"data_digest":"0'), "other data"),
        (_replace("history.jsonl", "UnitCommitted", "UnitEaten"), "cannot be read"),
        (lambda folder: shutil.rmtree(folder / "logs"), "cannot copy"),
        (lambda folder: (folder / "spec.json").write_text("{"), "cannot be read"),
    ],
)
def test_what_is_not_whole_is_trained_again(
    home: Path, first: RunResult, harm: Callable[[Path], None], why: str
) -> None:
    harm(first.folder.path)
    taken, reasons = found(home)
    assert taken == 0
    assert why in reasons


NOTHING = "nothing is taken over from earlier runs; not from run recorded: "


def test_a_config_that_stands_where_no_state_was_kept_is_trained_from_the_last_one_that_was(
    home: Path, first: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction takes over so many visits at most. Between two a leader may find that the list of what
    there is has gone."""
    monkeypatch.setattr(reuse, "_AT_ONCE", 1)

    def only_the_first(spec: Spec) -> Reusable:
        steps = read_reusable(spec).steps.items()
        return Reusable({at: visits for at, visits in steps if visits[0].input is None})

    monkeypatch.setattr(recorded_run, "read_reusable", only_the_first)
    assert not any(Path(row.visits[0].output.url).exists() for row in first.leaderboard)
    again = record(home, "again", reuse=True)
    assert len(again.view.trained) == 6
    assert content(again) == content(first)
    assert verify(again) == []


def test_a_run_that_deletes_the_former_one_of_its_id_reuses_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="deletes what reuse would take over"):
        Launch.of({}, run_id="x", home=tmp_path, fresh=True, store=None, grace=1.0, reuse=True)


def test_a_copy_of_a_run_that_begins_afresh_deletes_nothing_of_the_original(
    home: Path, first: RunResult
) -> None:
    launch = Launch(first.spec.load_recipe(), RunFolder(home / "copies" / first.run), fresh=True)
    shutil.copytree(first.folder.path, launch.folder.former)
    launch._delete_elsewhere(first.spec, Watcher())
    assert all(Path(row.checkpoint.url).exists() for row in first.leaderboard if row.checkpoint)


def test_a_list_of_what_there_is_that_was_changed_is_not_believed(home: Path) -> None:
    spec, said = opened(home, "again", reuse=True), list[str]()
    file = home / "runs" / "again" / "reuse.json"
    file.write_text(file.read_text().replace('"samples":', '"samples": '))
    assert read_reusable(spec, said.append).steps == {}
    file.unlink()
    assert read_reusable(spec, said.append).steps == {}
    assert ["all is trained" in text for text in said] == [True, True]


def test_a_run_that_goes_on_or_was_made_by_other_versions_is_not_taken(
    home: Path, first: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    with first.folder.locked():
        assert found(home) == (0, f"{NOTHING}it still runs")
    here = versions.of_units(first.spec, first.recipe)
    for name in ("torch", "processor"):
        other = {**here, name: "another"}
        monkeypatch.setattr("cerebro_elastic.runs.start.reuse.of_units", lambda *_, other=other: other)
        assert found(home) == (0, f"{NOTHING}{name} {here[name]}, now another")


@pytest.mark.parametrize(
    "search",
    [
        {
            "method": "asha",
            "num": 3,
            "reduction_factor": 3,
            "min_resource": 2,
            "space": {"lr": {"uniform": [0.01, 0.9]}},
        },
        {"space": {"lr": [0.01, 0.1]}, "budget": {"units": 7}},
    ],
    ids=["asha", "budget"],
)
def test_a_search_that_may_stop_configs_trains_nothing_again(home: Path, search: dict[str, Any]) -> None:
    """A config passes ends of epochs whose states are gone."""
    search = {"space": {"lr": {"uniform": [0.01, 0.9]}}, **search}
    kept = record(home, "kept", search=search, epochs=4)
    again = record(home, "again", reuse=True, search=search, epochs=4)
    assert not again.view.trained
    assert content(again) == content(kept)
    assert verify(again) == []


def test_the_clones_of_a_population_need_the_states_of_epochs(home: Path) -> None:
    search = {"method": "pbt", "num": 4, "space": {"lr": [0.01, 0.1, 0.2, 0.3]}}
    record(home, "kept", search=search, epochs=4)
    steps = read_reusable(opened(home, "looks", reuse=True, search=search, epochs=4)).steps.values()
    passed = [visit.output.url for step in steps for visit in step[:-1] if visit.index_in_epoch == 1]
    assert steps
    assert all(Path(url).is_dir() for url in passed)
