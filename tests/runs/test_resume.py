"""A stopped run is checked before it goes on: nothing is started if it cannot."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic.core.events import Event, UnitCommitted
from cerebro_elastic.core.state import State
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.watcher import Watcher

pytestmark = pytest.mark.cluster


def stop_at_the_first_hop(events: Sequence[Event], state: State) -> None:
    """Ctrl-C, once some config has a checkpoint."""
    if any(isinstance(event, UnitCommitted) for event in events) and state.outcome is None:
        raise KeyboardInterrupt


def test_what_a_run_goes_on_with_is_checked_first(project: Path, tmp_path: Path) -> None:
    for name in ("recipe.yaml", "a_net.py", "a_dataset.py"):
        shutil.copy(project / name, tmp_path)
    recipe = load_recipe(tmp_path / "recipe.yaml", epochs=50, nodes=1)
    said: list[str] = []

    def start(watcher: Watcher) -> None:
        cerebro_elastic.run(recipe, run_id="resumed", home=tmp_path, watcher=watcher)

    def stop_at_the_start(text: str) -> None:
        said.append(text)
        if text.startswith("starting"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(Watcher(show=stop_at_the_first_hop))
    run = cerebro_elastic.open_run("resumed", home=tmp_path)
    head = next(row.checkpoint for row in run.leaderboard if row.checkpoint)
    file = Path(head.url, "tensors.safetensors")
    content = file.read_bytes()

    file.write_bytes(content[:-8])
    with pytest.raises(CheckpointError, match=r"cut short: it has .* bytes instead of"):
        start(Watcher(say=stop_at_the_start))
    assert not any(text.startswith("starting") for text in said)

    file.write_bytes(content)
    code = tmp_path / "a_net.py"
    code.write_text(code.read_text() + "# mended\n")
    with pytest.raises(KeyboardInterrupt):
        start(Watcher(say=stop_at_the_start))
    assert any("is not that with which the run began" in text for text in said)
