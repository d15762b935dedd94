"""How long a command takes whose libraries have stayed imported, beside the same command without.

    python benchmarks/stay.py recipes/digits.yaml [--rounds 3]

Runs ``cerebro check`` of the recipe in turns with and without ``CEREBRO_FORKSERVER=stay``. Printed are the
seconds, and the median of their ratio in each round. Needs no other work on the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from cerebro_elastic.system.forkserver import SOCKET, STAYS
from cerebro_elastic.system.forkserver.standing import TITLE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    check(options.recipe, stay=True)
    wait_until_imported()
    rounds = [(check(options.recipe), check(options.recipe, stay=True)) for _ in range(options.rounds)]
    for without, with_it in rounds:
        print(f"{without:.1f} s without, {with_it:.1f} s with libraries that stayed")
    print(f"ratio {statistics.median(with_it / without for without, with_it in rounds):.2f}")
    for process in standing():
        process.terminate()


def check(recipe: str, *, stay: bool = False) -> float:
    """The seconds of a check."""
    env = {name: value for name, value in os.environ.items() if name != SOCKET}
    command = [str(Path(sys.executable).with_name("cerebro")), "check", recipe]
    began = time.monotonic()
    subprocess.run(command, env={**env, **({SOCKET: STAYS} if stay else {})}, check=True, capture_output=True)
    return time.monotonic() - began


def wait_until_imported() -> None:
    """Wait until the server that has been started does nothing more."""
    while not (servers := standing()) or any(server.cpu_percent(1.0) > 1 for server in servers):
        time.sleep(0.1)


def standing() -> list[psutil.Process]:
    found = [each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [""])[0] == TITLE]
    return [each for each in found if each.username() == psutil.Process().username()]


if __name__ == "__main__":
    main()
