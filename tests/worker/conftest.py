"""``scene`` is importable, and made as often as a test wants one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from scene import Scene


@pytest.fixture
def make_scene(tmp_path: Path, imports_as_found: None) -> Iterator[Callable[..., Scene]]:  # noqa: ARG001
    """A scene in the folder of this name; the other arguments are those of ``Scene``."""
    threads = torch.get_num_threads()
    with ExitStack() as stack:

        def make(name: str = "scene", deed: str = "train", **recipe: Any) -> Scene:
            (tmp_path / name).mkdir()
            scene = Scene(tmp_path / name, deed, **recipe)
            stack.enter_context(scene.dump)
            return stack.enter_context(scene.rank())

        yield make
    torch.set_num_threads(threads)


@pytest.fixture
def deed() -> str:
    return "train"


@pytest.fixture
def scene(make_scene: Callable[..., Scene], deed: str) -> Scene:
    return make_scene(deed=deed)
