"""``python -m support.chaos --seed 7 --faults 60``: a storm, and the verdict on it.

3 nodes, 2 candidates for the lead and an etcd on this machine train 12 configs for 3 epochs, while faults
of all kinds strike. What is left, and the plan, lie in ``--folder``; ``--plan FILE`` strikes with that plan
again, ``--shrink`` looks for the few faults of a failing plan that it takes to fail (a storm for each try).

With ``--hosts N`` the storm is one over N hosts (see ``hosts.py``), which run ``cerebro host`` with
checkpoints on an S3 server of a host of its own: their links, clocks, disks and processes are hit, and those
of S3 and etcd.

Exit status: 0 if the run has survived and each fault has struck, 1 if the run has not survived, 3 if it has
but some fault did not strike (the storm was weaker than planned), and 4 if the storm itself failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cerebro_elastic.errors import StoreError
from cerebro_elastic.runs.folder import RunFolder
from support.cluster import Cluster
from support.etcd_cluster import check_etcd
from support.faults import (
    HOST_KINDS,
    KINDS,
    FaultPlan,
    Kind,
    What,
    plan_from_json,
    plan_to_json,
    random_plan,
    shrink,
)
from support.host_cluster import HostCluster
from support.host_storm import HostStorm
from support.hosts import beside_hosts, is_beside_hosts, why_no_clock, why_no_loss, why_not
from support.storm import Storm
from support.storm_task import BATCH, PARTITIONS
from support.verdict import fate, judge, judge_hosts, missed, wasted

NODES, CANDIDATES = 3, 2
CONFIGS, EPOCHS = 12, 3
WRONG, WEAK, BROKEN = 1, 3, 4
"""Exit statuses: of a run that did not survive, of a storm of which a fault did not strike, and of one that
failed itself."""
LAST = 0.7
"""No fault is planned for the last units: each should meet a run that still goes on."""


def recipe(configs: int, epochs: int, width: int = 16) -> dict[str, Any]:
    """What a storm trains, with hidden layers that are ``width`` wide. A rank that is killed counts as a try
    of its unit, hence many."""
    task = "support.storm_task"
    return {
        "name": "storm",
        "seed": 1,
        "epochs": epochs,
        "nodes": f"1:{NODES}",
        "task": {"kind": "torch", "model_fn": f"{task}:model", "loss": "cross_entropy"},
        "data": {"source": f"{task}:data", "partitions": PARTITIONS, "valid": 0.1, "batch_size": BATCH},
        "search": {"space": {"lr": [0.1 / 2**i for i in range(configs)], "width": [width]}},
        "limits": {"tries": 1000},
    }


def storm(
    folder: Path, plan: FaultPlan, *, configs: int, epochs: int, members: int, deadline: float, out: Console
) -> tuple[list[str], list[str]]:
    """Strike a fresh run in ``folder`` with ``plan``; what is wrong with the run afterwards, and which faults
    did not strike."""
    began = time.monotonic()

    def say(text: str) -> None:
        out.print(f"{time.monotonic() - began:6.1f} s  {text}", highlight=False)

    with Cluster(
        recipe(configs, epochs),
        RunFolder(folder / "storm"),
        nodes=NODES,
        candidates=CANDIDATES,
        members=members,
    ) as cluster:
        (folder / "plan.jsonl").write_text(plan_to_json(plan))
        raging = Storm(cluster, plan, say)
        problems = [] if raging.rage(deadline) else [f"the run did not end within {deadline:g} s"]
        lasted = time.monotonic() - began
    say("judging")
    problems += judge(cluster, raging.strikes)
    _report(raging, lasted, out)
    lost = sum(map(len, wasted(cluster, raging.events).values()))
    out.print(f"{lost} attempts begun and lost", highlight=False)
    return problems, list(missed(raging.strikes))


WIDTH = 2048
"""Of the layers that hosts train: a state has 0.2 MB, which takes seconds over a slow link."""
STANDSTILL_SECONDS = 60.0
"""For so long hosts may commit nothing although S3, a quorum of etcd and some host are in reach. A request to
S3 that was cut off is given up after 30 s (``read_timeout``), and its unit is then trained again; a lost host
is missed after its lease, 5 s, and a restarted one takes seconds to import what it needs."""


def storm_over_hosts(
    folder: Path,
    plan: FaultPlan,
    *,
    hosts: int,
    configs: int,
    epochs: int,
    members: int,
    gang: int,
    deadline: float,
    out: Console,
) -> tuple[list[str], list[str]]:
    """As ``storm``, over hosts; ``gang`` of them train a unit together."""
    began = time.monotonic()

    def say(text: str) -> None:
        out.print(f"{time.monotonic() - began:6.1f} s  {text}", highlight=False)

    trained = recipe(configs, epochs, WIDTH)
    if gang > 1:
        trained |= {"parallelism": {"use": "ddp", "ranks": gang}, "gang": gang}
    with HostCluster(trained, folder, hosts=hosts, members=members) as cluster:
        (folder / "plan.jsonl").write_text(plan_to_json(plan))
        raging = HostStorm(cluster, plan, say)
        problems = [] if raging.rage(deadline) else [f"the run did not end within {deadline:g} s"]
        lasted = time.monotonic() - began
        say("judging")
        problems += judge_hosts(cluster)
    seconds, commit = raging.standstill
    if seconds > STANDSTILL_SECONDS:
        problems.append(f"nothing was committed for {seconds:.0f} s after commit {commit}")
    _report(raging, lasted, out)
    out.print(
        f"the longest time without a commit that no fault excuses: {seconds:.0f} s, after commit {commit}"
    )
    return problems, list(missed(raging.strikes))


def _report(raging: Storm[Any], lasted: float, out: Console) -> None:
    fates: dict[Kind, Counter[str]] = {}
    for strike in raging.strikes:
        fates.setdefault(strike.fault.kind, Counter())[fate(strike, raging.events)] += 1
    table = Table("fault", "times", "what became of it")
    for kind in sorted(fates, key=lambda kind: (kind.whom, kind.what, kind.point or "")):
        fates_text = ", ".join(f"{count} {what}" for what, count in fates[kind].most_common())
        table.add_row(str(kind), str(fates[kind].total()), fates_text)
    out.print(table)
    struck = sum(strike.revision > 0 for strike in raging.strikes)
    out.print(
        f"{struck} faults of {len(fates)} kinds in {lasted:.0f} s; {raging.seen.commits} visits committed",
        highlight=False,
    )


def main() -> int:
    """The exit status."""
    out = Console()
    try:
        return _strike(out)
    except Exception:
        out.print_exception()
        out.print("the storm itself has failed, which says nothing of the run", style="red")
        return BROKEN


def _strike(out: Console) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--etcd", type=int, default=1, metavar="MEMBERS", help="of the etcd cluster")
    parser.add_argument("--hosts", type=int, default=0, help="a storm over so many hosts")
    parser.add_argument("--gang", type=int, default=1, help="hosts that train a unit together, by ddp")
    parser.add_argument("--plan", type=Path, help="a plan.jsonl instead of one from a seed")
    parser.add_argument(
        "--folder", type=Path, help="where to leave everything (by default a temporary folder)"
    )
    parser.add_argument("--configs", type=int, default=CONFIGS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument(
        "--deadline", type=float, help="seconds that the run may take (by default 600, over hosts 1800)"
    )
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    deadline = options.deadline or (1800.0 if options.hosts else 600.0)
    if options.etcd > 1:
        try:
            check_etcd()
        except StoreError as error:
            parser.error(str(error))
    if options.hosts and (why := why_not()):
        parser.error(why)
    units = options.configs * options.epochs * PARTITIONS
    plan = random_plan(
        options.seed,
        options.faults,
        nodes=options.hosts or NODES,
        commits=int(units * LAST),
        members=options.etcd,
        kinds=_kinds_of_hosts(out) if options.hosts else KINDS,
    )
    if options.plan:
        plan = plan_from_json(options.plan.read_text())
    # Hosts have a /tmp of their own.
    folder = options.folder or Path(
        tempfile.mkdtemp(prefix="cerebro-storm-", dir="/var/tmp" if options.hosts else None)
    )
    tries = count(1)

    def struck_by(plan: FaultPlan) -> tuple[list[str], list[str]]:
        scratch = folder / f"{next(tries)}"
        scratch.mkdir(parents=True)
        sizes = {"configs": options.configs, "epochs": options.epochs, "members": options.etcd}
        if options.hosts:
            return storm_over_hosts(
                scratch, plan, hosts=options.hosts, gang=options.gang, **sizes, deadline=deadline, out=out
            )
        return storm(scratch, plan, **sizes, deadline=deadline, out=out)

    problems, misses = struck_by(plan)
    for miss in misses:
        out.print(f"WEAK: {miss}", style="yellow", highlight=False)
    for problem in problems:
        out.print(f"WRONG: {problem}", style="red", highlight=False)
    out.print(f"all is left in {folder}" if problems else "the run has survived")
    if problems and options.shrink:
        for fault in shrink(plan, lambda part: bool(struck_by(part)[0])):
            out.print(f"it takes: {fault}")
    if not problems and not options.folder:
        shutil.rmtree(folder)
    return WRONG if problems else WEAK if misses else 0


def _kinds_of_hosts(out: Console) -> Mapping[Kind, tuple[float, ...]]:
    """Those that are possible here."""
    kinds = dict(HOST_KINDS)
    for why, ruled_out in (
        (why_no_clock(), (What.AHEAD, What.BEHIND)),
        (why_no_loss(), (What.LOSSY, What.NARROW, What.NARROW_TO, What.NARROW_FROM)),
    ):
        if why is not None:
            out.print(f"note: {why}", style="yellow")
            kinds = {kind: seconds for kind, seconds in kinds.items() if kind.what not in ruled_out}
    return kinds


if __name__ == "__main__":
    command = [sys.executable, "-m", "support.chaos", *sys.argv[1:]]
    if any(word.startswith("--hosts") for word in command) and why_not() is None and not is_beside_hosts():
        os.execvp("env", beside_hosts(command))
    sys.exit(main())
