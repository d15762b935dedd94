"""Files of another user: only root can make them."""

from __future__ import annotations

import os

import pytest

OTHER = 65534
"""Another user's id."""
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
