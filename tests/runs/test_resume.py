"""A stopped run goes on, also with a damaged checkpoint, and with changed code only if somebody agrees."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic import RunError
from cerebro_elastic.core.model.events import Event, UnitCommitted, UnitFailed
from cerebro_elastic.core.model.state import State
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.terminal_view import Watcher

pytestmark = pytest.mark.cluster


def stop_at_the_first_hop(events: Sequence[Event], state: State) -> None:
    """Ctrl-C, once some config has a checkpoint."""
    if any(isinstance(event, UnitCommitted) for event in events) and state.outcome is None:
        raise KeyboardInterrupt


def test_a_run_goes_on_with_a_damaged_checkpoint_and_with_changed_code_if_somebody_agrees(
    project: Path, tmp_path: Path
) -> None:
    for name in ("recipe.yaml", "a_net.py", "a_dataset.py"):
        shutil.copy(project / name, tmp_path)
    recipe = load_recipe(tmp_path / "recipe.yaml", epochs=50, nodes=1)
    said: list[str] = []

    def start(watcher: Watcher, **options: bool) -> None:
        cerebro_elastic.run(recipe, run_id="resumed", home=tmp_path, watcher=watcher, **options)

    with pytest.raises(KeyboardInterrupt):
        start(Watcher(show=stop_at_the_first_hop))
    run = cerebro_elastic.Run.open("resumed", home=tmp_path).result
    head = next(row.checkpoint for row in run.leaderboard if row.checkpoint)
    file = Path(head.url, "tensors.safetensors")
    file.write_bytes(file.read_bytes()[:-8])
    code = tmp_path / "a_net.py"
    code.write_text(code.read_text() + "mended = 1\n")

    def stop_behind_it(events: Sequence[Event], _state: State) -> None:
        if any(isinstance(event, UnitCommitted) and event.visit.input == head for event in events):
            raise KeyboardInterrupt

    with pytest.raises(RunError, match=r"a_net.py was \w{12} when .*, give changed_code=True; else"):
        start(Watcher())
    with pytest.raises(KeyboardInterrupt):
        start(Watcher(show=stop_behind_it, say=said.append), changed_code=True)
    assert not any(
        isinstance(e, UnitFailed) for e in cerebro_elastic.Run.open("resumed", home=tmp_path).result.events
    )
    note = r"note: a_net.py \([0-9a-f]{12} then, [0-9a-f]{12} now\) is not as it was when the run began"
    assert any(re.match(note, text) for text in said)
