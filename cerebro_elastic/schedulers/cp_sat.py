"""The process that solves a schedule with CP-SAT (see ``exact`` and ``joint_exact``): JSON in, JSON out."""

from __future__ import annotations

import json
import sys
from typing import Any

from cerebro_elastic.schedulers.exact import MISSING


def open_shop(question: dict[str, Any]) -> list[tuple[int, int, int, int]] | None:
    """The units as (config, partition, node, start in ticks), by start; None if nothing was found."""
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
                options.append((start, seconds, here, (i, j, n)))
            model.add_exactly_one(present)
    for spans in (*by_node.values(), *by_config.values()):
        model.add_no_overlap(spans)
    model.minimize(last)
    solver = _solved(model, question)
    if solver is None:
        return None
    return _by_start(solver, options)


def joint(question: dict[str, Any]) -> dict[str, Any] | None:
    """The units as (config, node, width, start in ticks), by start, and the ticks before which the last
    cannot end; None if nothing was found. The numbers are the thesis' equations' (see ``joint_exact``)."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    length, durations, devices = question["length"], question["durations"], question["devices"]
    hints = {(i, n): (g, start) for i, n, g, start in question["hint"]}
    last = model.new_int_var(0, length, "makespan")
    options = []
    on_node: list[list[Any]] = [[] for _ in devices]
    widths: list[list[int]] = [[] for _ in devices]
    for i, nodes in enumerate(durations):
        of_config = []
        for n, choices in enumerate(nodes):
            hinted, when = hints[i, n]
            # One start for all devices of a unit (4.5, 4.6), not negative (4.13).
            start = model.new_int_var(0, length, "")
            model.add_hint(start, round(when))
            chosen = []
            for g, ticks in enumerate(choices, start=1):
                if ticks is None:
                    continue
                here = model.new_bool_var("")
                span = model.new_optional_fixed_size_interval_var(start, ticks, here, "")
                of_config.append(span)
                on_node[n].append(span)
                widths[n].append(g)
                model.add(last >= start + ticks).only_enforce_if(here)  # 4.1
                model.add_hint(here, g == hinted)
                chosen.append(here)
                options.append((start, ticks, here, (i, n, g)))
            model.add_exactly_one(chosen)  # 4.2
        model.add_no_overlap(of_config)  # 4.10 to 4.12, 4.14
    for spans, demands, capacity in zip(on_node, widths, devices, strict=True):
        model.add_cumulative(spans, demands, capacity)  # 4.3, 4.4, 4.7 to 4.9
    model.minimize(last)
    solver = _solved(model, question)
    if solver is None:
        return None
    return {"units": _by_start(solver, options), "bound": solver.best_objective_bound}


def _solved(model: Any, question: dict[str, Any]) -> Any:
    """The solver with the best schedule found, if it found any."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = question["seconds"]
    solver.parameters.random_seed = question["seed"]
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    return solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None


def _by_start(solver: Any, options: list[tuple[Any, int, Any, tuple[int, int, int]]]) -> list[Any]:
    """What is present of ``options`` (start, ticks, whether, what): what, and the start."""
    present = [
        (solver.value(start), ticks, what) for start, ticks, here, what in options if solver.value(here)
    ]
    return [(*what, start) for start, _, what in sorted(present)]


if __name__ == "__main__":
    try:
        import ortools  # noqa: F401
    except ImportError:
        sys.exit(MISSING)
    asked = json.load(sys.stdin)
    json.dump({"open shop": open_shop, "joint": joint}[asked["problem"]](asked), sys.stdout)
