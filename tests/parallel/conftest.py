"""Two rank processes for all tests here: importing torch and deepspeed costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cerebro_elastic.testing.ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Two processes; each test leaves both alive and without a group."""
    with Ranks(2) as two:
        yield two
