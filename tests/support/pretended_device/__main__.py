"""Runs a command with a pretended device: ``PYTHONPATH=tests python -m support.pretended_device COMMAND``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from support.pretended_device import environment

with TemporaryDirectory(prefix="pretended-") as folder:
    device = environment("CUDA", Path(folder))
    sys.exit(subprocess.call(sys.argv[1:], env={**os.environ, **device}))
