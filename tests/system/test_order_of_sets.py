"""Processes that run the user's code order sets of texts alike, on each host and in a replay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cerebro_elastic.system.subprocess_call import NO_FORK, call
from cerebro_elastic.training.parallel.rank_pool import Ranks

TEXTS = [f"text {number}" for number in range(50)]
PRINTS = (
    "from cerebro_elastic.system.process import begin_as_training; begin_as_training(); import sys; "
    "print(*set(sys.argv[1:]), sep=',')"
)


def ordered(env: dict[str, str]) -> list[str]:
    """The texts as a command that trains in its own process orders them."""
    command = [sys.executable, "-c", PRINTS, *TEXTS]
    return subprocess.check_output(command, env=env, text=True).strip().split(",")


def order_here() -> list[str]:
    return list(set(TEXTS))


def test_all_have_the_order_of_a_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    first = ordered({**os.environ, "PYTHONHASHSEED": "0"})
    assert ordered(dict(os.environ)) == first
    (tmp_path / "says.py").write_text(
        "from cerebro_elastic.system.subprocess_call import serve\n"
        f"serve(lambda _: {{'order': list({set(TEXTS)!r})}})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    for name, value in NO_FORK.items():
        monkeypatch.setenv(name, value)
    assert sorted(call("says", "a test", {})["order"]) == sorted(first)
    assert len({tuple(call("says", "a test", {})["order"]) for _ in range(3)}) == 1
    with Ranks(1) as pool:
        assert pool.alone(0, order_here) == first


def test_a_seed_of_the_users_is_kept() -> None:
    assert ordered({**os.environ, "PYTHONHASHSEED": "7"}) != ordered({**os.environ, "PYTHONHASHSEED": "0"})
