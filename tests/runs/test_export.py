"""A trained model, taken out of a run."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cerebro_elastic import RunResult
from cerebro_elastic.core.model.events import RunEnded
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import DamagedCheckpoint, RunError, StorageError
from cerebro_elastic.runs.results.export import export
from cerebro_elastic.runs.results.result import load_picked
from cerebro_elastic.system.files import Place, locate, read, sizes

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def model(finished: RunResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "best"
    # What an export that was killed has left; below nothing but this one is there.
    with subprocess.Popen(["true"]) as killed:
        killed.wait()
    (folder.parent / f".best.tmp-{killed.pid}" / "half").mkdir(parents=True)
    assert len(repr(export(finished, folder))) < 1000, "a line in a notebook"
    return folder


def test_the_weights_are_those_of_the_best_epoch(finished: RunResult, model: Path) -> None:
    state = finished.state(finished.best.config)["state_dict"]
    weights = load_file(model / "model.safetensors")
    assert set(weights) == set(state)
    assert all(torch.equal(weights[name], state[name]) for name in state)
    checkpoint = torch.load(model / "model.ckpt", weights_only=True)
    best = finished.best
    assert best.best_epoch is not None
    assert checkpoint["epoch"] == best.best_epoch
    assert checkpoint["hyper_parameters"] == dict(best.hparams)
    assert checkpoint["global_step"] == 23 * checkpoint["epoch"], "45 batches an epoch, 2 to a step"


def test_the_card_says_where_the_model_comes_from(finished: RunResult, model: Path) -> None:
    best, text = finished.best, (model / "README.md").read_text()
    for part in (
        f"# finished, {best.config}",
        f"| lr | {best.hparams['lr']} |",
        f"| val_acc | {best.best:.4g} |",
        'Net.load_from_checkpoint("model.ckpt")',
        "license: unknown",
        finished.spec.data_digest,
        "Training that continues from these files starts without:\n- the random generators",
        str(finished.lines[-1].digest),
        f"{len(best.visits)} visits on ",
    ):
        assert part in text
    record = json.loads((model / "record.json").read_text())
    assert record["hparams"] == dict(best.hparams)
    assert record["visits"][0]["output"]["digest"] == best.visits[0].output.digest
    assert len(record["visits"]) == 3 * record["epoch"]


@pytest.mark.usefixtures("s3")
def test_a_model_may_go_to_a_url(finished: RunResult, model: Path) -> None:
    url = "s3://bucket/models/best"
    export(finished, url)
    written = {path.rpartition("/")[2]: read(Place(locate(url).fs, path)) for path in sizes(locate(url))}
    assert written.keys() == {path.name for path in model.iterdir()}
    assert written["model.safetensors"] == (model / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="s3://bucket/models/best is not empty"):
        export(finished, url)
    with pytest.raises(StorageError, match="more slashes behind its protocol: s3://bucket/n"):
        export(finished, Path("s3://bucket/n"))


def test_the_report_was_written_at_the_end(finished: RunResult) -> None:
    page = finished.folder.report.read_text()
    assert finished.best.config in page
    (board,) = re.findall(r'(?s)<script type="application/json" id="board-of-report">(.*?)</script>', page)
    units = json.loads(board)[0]["spans"]
    assert len(units) == sum(len(row.visits) for row in finished.leaderboard)


def test_a_state_that_is_deleted_while_it_is_read_is_chosen_anew(finished: RunResult) -> None:
    ended = next(n for n, line in enumerate(finished.lines) if isinstance(line.event, RunEnded))
    ref = finished.best.best_checkpoint
    assert ref is not None
    gone = replace(ref, url=f"{ref.url}-gone")
    looks: list[int] = []

    def pick(result: RunResult) -> tuple[int, CheckpointRef]:
        looks.append(len(result.lines))
        return len(looks), gone if len(looks) == 1 else ref

    result, picked, state = load_picked(finished.upto(ended), pick)
    assert (looks, picked) == ([ended, len(finished.lines)], 2)
    assert len(result.lines) == len(finished.lines)
    assert state["state_dict"].keys() == finished.state(finished.best.config)["state_dict"].keys()
    with pytest.raises(DamagedCheckpoint):  # of a run that has ended nothing is deleted any more
        load_picked(finished, lambda _result: (0, gone))
