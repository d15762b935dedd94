"""The process that solves a schedule with CP-SAT (see ``exact``): JSON in, JSON out."""

from __future__ import annotations

import json
import sys
from typing import Any

from cerebro_elastic.schedulers.exact import MISSING


def solve(question: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    """The units as (config, partition, node, start in ticks)."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    length, durations, takers = question["length"], question["durations"], question["takers"]
    by_node: dict[int, list[Any]] = {}
    by_config: dict[int, list[Any]] = {}
    options = []
    hints = {(i, j): (n, start) for i, j, n, start in question["hint"]}
    last = model.new_int_var(0, length * 2, "makespan")
    for i, partitions in enumerate(durations):
        for j, row in enumerate(partitions):
            present = []
            hinted, when = hints[i, j]
            for n, seconds in enumerate(row):
                if not takers[j][n]:
                    continue
                ready = max(question["node_ready"][n], question["config_ready"][i])
                start = model.new_int_var(ready, length * 2, "")
                here = model.new_bool_var("")
                span = model.new_optional_fixed_size_interval_var(start, seconds, here, "")
                by_node.setdefault(n, []).append(span)
                by_config.setdefault(i, []).append(span)
                model.add(last >= start + seconds).only_enforce_if(here)
                model.add_hint(here, n == hinted)
                model.add_hint(start, round(when) if n == hinted else ready)
                present.append(here)
                options.append((i, j, n, start, here))
            model.add_exactly_one(present)
    for spans in (*by_node.values(), *by_config.values()):
        model.add_no_overlap(spans)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = question["seconds"]
    solver.parameters.random_seed = question["seed"]
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [(i, j, n, round(start)) for i, j, n, start in question["hint"]]
    return [(i, j, n, solver.value(start)) for i, j, n, start, here in options if solver.value(here)]


if __name__ == "__main__":
    try:
        import ortools  # noqa: F401
    except ImportError:
        sys.exit(MISSING)
    json.dump(solve(json.load(sys.stdin)), sys.stdout)
