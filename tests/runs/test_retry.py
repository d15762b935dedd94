"""Two of four configs fail by a bug. The module is mended, and they are trained again; the good ones stay."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic import Run, RunError, RunResult
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.run import Extension
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.runs.arguments import Extend
from cerebro_elastic.runs.results.replay import what_differs
from cerebro_elastic.runs.start.extend_and_retry import planned
from cerebro_elastic.runs.start.prepare_run import agreement, check_code, refuse_other_code
from cerebro_elastic.runs.terminal_view import Watcher

pytestmark = pytest.mark.cluster
BUG = "if self.global_step == self.fail_at:"


@pytest.fixture(scope="module")
def broken(project: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("broken")
    shutil.copy(project / "a_net.py", folder / "a_broken_net.py")  # replays import it here, beside others
    shutil.copy(project / "a_dataset.py", folder)
    (folder / "recipe.yaml").write_text(
        (project / "recipe.yaml").read_text().replace("a_net:", "a_broken_net:")
    )
    space = {"lr": [0.01], "width": [16], "fail_at": [-1, 4]}
    return cerebro_elastic.run(
        folder / "recipe.yaml", run_id="failing", home=folder, epochs=1, nodes=2, search={"space": space}
    )


def test_a_failing_config_fails_with_its_story_and_is_trained_again_once_its_bug_is_mended(
    broken: RunResult,
) -> None:
    by_status = {row.status: row for row in broken.leaderboard}
    assert set(by_status) == {"finished", "failed"}
    good, bad = by_status["finished"], by_status["failed"]
    for words in ("failed alike on node-", "0.01 is not to my liking", "a_broken_net.py", "node-0", "node-1"):
        assert words in bad.reason
    run = Run(broken.folder)
    assert run.verify() == []
    with pytest.raises(RunError, match=rf"config {bad.config} has failed.*retry"):
        planned(broken, Extend(epochs=2, configs=[bad.config]))

    net = Path(broken.spec.root, "a_broken_net.py")
    net.write_text(net.read_text().replace(BUG, "if False:"))
    said: list[str] = []
    recipe = broken.recipe
    cerebro_elastic.run(recipe, run_id="failing", home=run.folder.path.parent, watcher=Watcher(said.append))
    assert "failing').retry()" in said[-1]
    assert "1 of 2 configs failed" in said[-1]
    assert "a_broken_net.py was " in said[-2]

    result = run.retry(by="me")
    assert {row.status for row in result.leaderboard} == {"finished"}
    assert result.config(good.config).visits == good.visits
    assert list(result.config(bad.config).visits[: len(bad.visits)]) == list(bad.visits)
    assert run.verify() == []
    assert all(visit.same for row in result.leaderboard for visit in run.replay(row.config))
    before = [text for text in what_differs(result, bad.config) if "before the code was changed" in text]
    assert [text.split()[0] for text in before] == ([str(len(bad.visits))] if bad.visits else [])
    with pytest.raises(RunError, match="no config of run 'failing' has failed"):
        run.retry()
    net.write_text(net.read_text() + "another = 1\n")
    assert what_differs(result)[0].startswith("a_broken_net.py was ")


@pytest.mark.parametrize(
    ("status", "going_on", "asked"),
    [
        (Status.LIVE, {}, True),
        (Status.FINISHED, {}, False),
        (Status.FINISHED, {"c0": 1}, True),
        (Status.FAILED, {"c0": 1}, False),
        (Status.FAILED, {}, False),
    ],
)
def test_somebody_agrees_before_trained_configs_go_on_with_other_code(
    status: Status, going_on: dict[str, int], asked: bool, broken: RunResult
) -> None:
    head = CheckpointRef("there", "digest", 1)
    state = State(configs={"c0": Config("c0", {}, status, epoch=1, head=head)})
    extensions = (Extension(1, 2, going_on),) if going_on else ()
    spec = replace(broken.spec, code={**broken.spec.code, "a_dataset.py": "0" * 64}, extensions=extensions)
    questions: list[str] = []
    check_code(spec, state, lambda question: not questions.append(question))
    assert bool(questions) is asked
    check_code(replace(broken.spec, code={}), state, refuse_other_code)
    check_code(spec, state, agreement(changed_code=True))
    if asked:
        assert "a_dataset.py was 000000000000 when the run was made" in questions[0]
        with pytest.raises(RunError, match="give changed_code=True"):
            check_code(spec, state, agreement(changed_code=False))
        with pytest.raises(RunError, match="nothing is changed"):
            check_code(spec, state, lambda _question: False)
