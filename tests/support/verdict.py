"""The verdict on a storm: what the run's record, the processes' logs and the disk say afterwards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cerebro_elastic.core.history.view import ConfigHistory
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.system.files import locate
from support.cluster import Cluster
from support.faults.plan import Point, What, Whom
from support.host_cluster import HostCluster
from support.lead import record_of
from support.storm import Strike


def judge(cluster: Cluster, strikes: Sequence[Strike]) -> Iterator[str]:
    """A sentence for each thing that is not as it should be; none if the run has survived."""
    results = {name: RunResult(record_of(cluster.folder, name)) for name in cluster.candidates}
    yield from _of_records(results)
    result = next(iter(results.values()))
    yield from _restarted_unharmed(cluster, result.events, strikes)
    yield from _wasted(cluster, result.events, strikes)
    yield from _left_behind(cluster.folder.path)


def judge_hosts(cluster: HostCluster) -> Iterator[str]:
    """The same for hosts."""
    results = cluster.results()
    if not results:
        yield "no host has a record of the run"
        return
    yield from _of_records(results)
    for name, process in cluster.processes.items():
        if process.status != 0:
            yield f"the command of {name} has ended with {process.status} after the run: see {process.log}"
    for line in cluster.left_running():
        yield f"a process is left on {line}"


def _of_records(results: Mapping[str, RunResult]) -> Iterator[str]:
    """What is wrong by the records, and with the checkpoints."""
    broken = {name: verify(result) for name, result in results.items()}
    for name, violations in broken.items():
        for violation in violations:
            yield f"{name} has on record: {violation.invariant}: {violation.story}"
    if any(violation.invariant == "history" for violations in broken.values() for violation in violations):
        return  # a history that cannot be leads nowhere
    first, result = next(iter(results.items()))
    for name, other in results.items():
        if _visits(other) != _visits(result):
            yield f"{name} and {first} have different visits on record"
    yield from _unlike_their_replay(result)
    yield from _orphans(result)


def missed(strikes: Sequence[Strike]) -> Iterator[str]:
    """A sentence for each fault that did not strike: the storm was weaker than planned."""
    for strike in strikes:
        if not strike.revision:
            why = "nobody came to its point" if strike.target else "the run ended before it could"
            yield f"did not strike, as {why}: {strike.fault}"


def fate(strike: Strike, events: Sequence[ev.Event]) -> str:
    """What became of the unit that the fault hit, or of the lead."""
    if not strike.revision:
        return "did not strike"
    if strike.fault.whom in (Whom.ETCD, Whom.STORAGE):
        return "ridden out"
    if strike.fault.whom is Whom.CONTROLLER:
        later = [e.leader for e in events if isinstance(e, ev.LeaderChanged) and e.revision > strike.revision]
        return "another led" if later else "led on"
    if not strike.attempt:
        return "between units"
    match next((e for e in events if _token(e) == strike.attempt), None):
        case ev.UnitCommitted(visit=visit):
            return "unit committed" if visit.whole else "part committed"
        case ev.UnitFailed(failure=failure):
            return f"unit failed: {failure.kind}"
        case ev.UnitWithdrawn():
            return "unit withdrawn"
    return "unit never ended"


def hits(strikes: Sequence[Strike], nodes: Iterable[str]) -> Counter[str]:
    """How often each of the ``nodes`` was hit. Who is sent on the way to a fault was hit before it. All share
    one cache."""
    hits_by_node: Counter[str] = Counter()
    for strike in strikes:
        if not strike.target or not strike.fault.of_node:
            continue
        if strike.fault.what is What.FLIP:
            hits_by_node.update(list(nodes))
        else:
            hits_by_node[strike.target] += 2 if strike.fault.point in (Point.JOIN, Point.DRAIN) else 1
    return hits_by_node


def wasted(cluster: Cluster, events: Sequence[ev.Event]) -> dict[str, set[int]]:
    """Attempts that a node's ranks began and that became no visit, by node."""
    committed = {e.visit.attempt for e in events if isinstance(e, ev.UnitCommitted)}
    lost = {}
    for node in cluster.nodes:
        began = {line["attempt"] for line in _log(cluster.log_of(node)) if line["event"] == "began"}
        lost[node] = began - committed
    return lost


def _visits(result: RunResult) -> Mapping[str, Sequence[Visit]]:
    return {config: row.visits for config, row in result.configs.items()}


def _unlike_their_replay(result: RunResult) -> Iterator[str]:
    for config, row in result.configs.items():
        if row.status != Status.FINISHED:
            yield f"config {config} is {row.status}: {row.reason}"
        different = [visit.visit for visit in replay(result, config) if not visit.same]
        if different:
            yield f"config {config}: {len(different)} visits differ from their replay, first {different[0]}"


def _restarted_unharmed(
    cluster: Cluster, events: Sequence[ev.Event], strikes: Sequence[Strike]
) -> Iterator[str]:
    """Each restart or new registration of a node has a fault on that very node for its cause."""
    hit = hits(strikes, cluster.nodes)
    joined = Counter(e.node.name for e in events if isinstance(e, ev.NodeJoined))
    for name, process in cluster.nodes.items():
        counts = {
            "was started": process.starts,
            "had ranks started": len(cluster.faults.ranks(name)),
            "registered": joined[name],
        }
        for what, count in counts.items():
            if count > 1 + hit[name]:
                yield f"{name} {what} {count} times, but was hit {hit[name]} times"


def _wasted(cluster: Cluster, events: Sequence[ev.Event], strikes: Sequence[Strike]) -> Iterator[str]:
    """A hit costs at most the unit in training and the one that is being saved behind it."""
    hit = hits(strikes, cluster.nodes)
    committed = {e.visit.attempt for e in events if isinstance(e, ev.UnitCommitted)}
    trained = {e.token: e.node for e in events if isinstance(e, ev.UnitTrained)}
    unsaved = Counter(node for token, node in trained.items() if token not in committed)
    behind = {e.revision: e.attempt.queued_behind for e in events if isinstance(e, ev.UnitAssigned)}
    for node, units in wasted(cluster, events).items():
        # Of one that was queued the one ahead may have been saved behind it, and was lost with it.
        single = sum(behind.get(token) not in units for token in units)
        if max(single - unsaved[node], unsaved[node]) > hit[node]:
            yield f"{node} began {len(units)} units that it did not commit, but was hit {hit[node]} times"


def _orphans(result: RunResult) -> Iterator[str]:
    objective, plan = result.recipe.objective, result.spec.plan
    kept = set()
    for row in result.leaderboard:
        history = ConfigHistory.of(result.view.state.configs[row.config], row.visits, plan)
        kept |= history.kept(objective)
    place = locate(result.spec.storage)
    for checkpoint in place.fs.glob(f"{place.path}/checkpoints/*/*"):
        if checkpoint not in {locate(url).path for url in kept}:
            yield f"an orphaned checkpoint is left: {checkpoint}"


def _left_behind(folder: Path) -> Iterator[str]:
    for command in processes_below(folder):
        yield f"a process is left: {command}"
    for file in folder.rglob("*.tmp"):
        yield f"a temporary file is left: {file}"
    for left in (folder / "logs" / "scratch").glob("*"):
        yield f"a folder of a process is left: {left}"


def processes_below(folder: Path) -> list[str]:
    """Command lines of the agents and ranks whose run lies below ``folder``."""
    commands = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            command = (entry / "cmdline").read_bytes() if environment else b""
        except OSError:
            continue
        if f"CEREBRO_CACHE={folder}".encode() in environment:
            commands.append(command.replace(b"\0", b" ").decode())
    return commands


def _token(event: ev.Event) -> int | None:
    match event:
        case ev.UnitCommitted(visit=visit):
            return visit.attempt
        case ev.UnitFailed(failure=failure):
            return failure.attempt
        case ev.UnitWithdrawn(token=token):
            return token
    return None


def _log(path: Path) -> Iterator[dict[str, object]]:
    """The lines that are ours: one JSON object each."""
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith('{"time"'):
            yield json.loads(line)
