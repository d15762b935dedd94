"""Runs a command beside a Ray head of this machine, and says between which times.

    python benchmarks/evidence/peers/on_head.py CORES COMMAND ...

The command's last line is printed with ``ready``, when the head ran and the command began, and ``done``, when
the command had ended. The head has no dashboard.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

HERE = Path(__file__).parent


@contextmanager
def head(folder: Path, cores: int) -> Iterator[dict[str, str]]:
    """A head on this machine; the environment of who uses it."""
    path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"  # its workers import what lies here
    environment = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": path}
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    ray = str(Path(sys.executable).parent / "ray")
    options = ["--head", f"--port={port}", f"--num-cpus={cores}", "--include-dashboard=false", "--block"]
    with subprocess.Popen(
        [ray, "start", *options, f"--temp-dir={folder}", "--node-ip-address=127.0.0.1"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        assert started.stdout is not None
        if not any("Ray runtime started" in line for line in started.stdout):
            raise SystemExit("Ray's head has not started")
        try:
            yield {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"}
        finally:
            left = psutil.Process(started.pid).children(recursive=True)
            started.terminate()
            started.communicate()
            for process in psutil.wait_procs(left, timeout=1)[1]:
                process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cores", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rh-") as folder,  # Ray's sockets need a short path
        head(Path(folder), asked.cores) as environment,
    ):
        ready = time.time()
        ended = subprocess.run(
            asked.command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True, text=True
        )
        done = time.time()
    print(json.dumps(json.loads(ended.stdout.splitlines()[-1]) | {"ready": ready, "done": done}))


if __name__ == "__main__":
    main()
