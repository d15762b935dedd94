"""The documentation's parallelism of one's own: installed by an entry point, found by name, hopped into."""

from __future__ import annotations

import site
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cerebro_elastic.training.parallel.base import make_parallelism
from cerebro_elastic.training.parallel.rank_pool import Ranks
from support.hops import unit, unpacked

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "plugins.md"


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """A folder as pip leaves it: the module, and its distribution's entry points."""
    text = DOCUMENT.read_text()
    text = text[text.index("`half_traffic.py`") :]
    code, entry = text.split("```python\n")[1].split("```")[0], text.split("```toml\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 60
    (tmp_path / "half_traffic.py").write_text(code)
    info = tmp_path / "half_traffic-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-traffic\nVersion: 1.0\n")
    group, line = entry.strip().splitlines()
    name = group.removeprefix('[project.entry-points."').removesuffix('"]')
    (info / "entry_points.txt").write_text(f"[{name}]\n{line.replace(chr(34), '')}\n")
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))
    sys.modules.pop("half_traffic", None)


@pytest.mark.cluster
def test_a_users_parallelism(installed: Path, ranks: Ranks) -> None:
    assert type(make_parallelism("half-traffic")).__name__ == "HalfTraffic"
    for rank in (0, 1):
        ranks.alone(rank, site.addsitedir, str(installed))
    whole = unpacked(ranks.together(unit, "single", {}, "sgd", None, range(6), members=[0])[0])
    left = ranks.together(unit, "fsdp", {}, "sgd", None, range(3), members=[0, 1])[0]
    for everywhere in (True, False):
        done = ranks.together(unit, "half-traffic", {}, "sgd", left, range(3, 6), everywhere, members=[0, 1])
        first, second = map(unpacked, done)
        for name, tensor in whole["model"].items():
            torch.testing.assert_close(first["model"][name], tensor, rtol=1e-2, atol=1e-3)
            assert torch.equal(first["model"][name], second["model"][name])
