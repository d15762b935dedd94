"""``units_on_ranks`` is importable, also in rank processes. Other tests are not the user's code."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def no_other_test_is_the_users_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """A task whose recipe lies in this folder carries the variables of all files below it that are imported:
    those of other tests, which these change."""
    own = request.module.__name__
    others = [name for name in sys.modules if name.startswith("tests.") and ".test_" in name and name != own]
    hidden = {name: sys.modules.pop(name) for name in others}
    yield
    sys.modules.update(hidden)
