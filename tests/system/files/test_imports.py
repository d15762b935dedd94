"""The imports of ``cerebro_elastic.system.files``: botocore is heavy, and most runs have no s3:// URL."""

from __future__ import annotations

import subprocess
import sys

LOCAL = """
import sys
from cerebro_elastic.system import files
files.read(files.locate(__import__("os").devnull))
heavy = {"botocore", "s3fs", "aiohttp", "cerebro_elastic.system.files.s3"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_s3_is_imported_only_where_it_is_used() -> None:
    subprocess.run([sys.executable, "-c", LOCAL], check=True)
