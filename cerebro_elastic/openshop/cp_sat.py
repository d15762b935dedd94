"""The process that solves a schedule with CP-SAT (see ``exact`` and ``joint_exact``): JSON in, JSON out."""

from __future__ import annotations

import json
import sys
from typing import Any

from cerebro_elastic.openshop.exact import MISSING


def open_shop(question: dict[str, Any]) -> list[tuple[int, int]] | None:
    """Of each unit the node, and the start in ticks; None if nothing was found.

    A unit is (config, epoch, {node: ticks}); a config's epochs follow one another, its units of one epoch
    have no order. After the last unit of a node or a config comes what the question leaves out: a tail. The
    ``hint`` is a node for each unit, the units being in the order of their starts."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    known = _left_shifted(question)
    node_tail, config_tail = question["node_tail"], question["config_tail"]
    units, hints = question["units"], question["hint"]
    spans = [
        (start, start + takers[n], max(node_tail[n], config_tail[i]))
        for start, n, (i, _, takers) in zip(known, hints, units, strict=True)
    ]
    length = max(end + tail for _, end, tail in spans)
    by_node: dict[int, list[Any]] = {}
    by_config: dict[int, list[Any]] = {}
    last = model.new_int_var(0, length, "makespan")
    model.add_hint(last, length)
    # Between two epochs of a config.
    turns = {(i, epoch): model.new_int_var(0, length, "") for i, epoch, _ in units}
    ends: dict[tuple[int, int], int] = {}
    for (i, epoch, _), (_, end, _) in zip(units, spans, strict=True):
        ends[i, epoch] = max(end, ends.get((i, epoch), 0))
    for which, turn in turns.items():
        model.add_hint(turn, ends[which])
    options = []
    for (i, epoch, takers), hinted, when in zip(units, hints, known, strict=True):
        choices = []
        for n, ticks in takers.items():
            ready = max(question["node_ready"][n], question["config_ready"][i])
            tail = max(node_tail[n], config_tail[i])
            start = model.new_int_var(ready, max(ready, length - ticks - tail), "")
            model.add_hint(start, when if n == hinted else ready)
            here, only = None, []
            if len(takers) > 1:
                here = model.new_bool_var("")
                model.add_hint(here, n == hinted)
                span = model.new_optional_fixed_size_interval_var(start, ticks, here, "")
                only = [here]
            else:
                span = model.new_fixed_size_interval_var(start, ticks, "")
            by_node.setdefault(n, []).append(span)
            by_config.setdefault(i, []).append(span)
            if (i, epoch + 1) in turns:
                model.add(start + ticks <= turns[i, epoch]).only_enforce_if(only)
            else:
                model.add(last >= start + ticks + tail).only_enforce_if(only)
            if (i, epoch - 1) in turns:
                model.add(start >= turns[i, epoch - 1]).only_enforce_if(only)
            choices.append((start, here, n))
        if len(choices) > 1:
            model.add_exactly_one(here for _, here, _ in choices)
        options.append(choices)
    for exclusive in (*by_node.values(), *by_config.values()):
        model.add_no_overlap(exclusive)
    model.minimize(last)
    solver = _solved(model, question)
    if solver is None:
        return None
    return [
        next((n, solver.value(start)) for start, here, n in choices if here is None or solver.value(here))
        for choices in options
    ]


def _left_shifted(question: dict[str, Any]) -> list[int]:
    """When the hint's units begin, each as early as its config and its node allow."""
    nodes, configs = question["node_ready"].copy(), question["config_ready"].copy()
    starts = []
    for n, (i, _, takers) in zip(question["hint"], question["units"], strict=True):
        starts.append(max(nodes[n], configs[i]))
        nodes[n] = configs[i] = starts[-1] + takers[n]
    return starts


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
    solver.parameters.random_seed = question["seed"]
    if "effort" in question:  # the same answer on every machine
        solver.parameters.max_deterministic_time = question["effort"]
        solver.parameters.num_workers = 1
        solver.parameters.interleave_search = True
    else:
        solver.parameters.max_time_in_seconds = question["seconds"]
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
    for unit in asked.get("units", ()):
        unit[2] = {int(n): ticks for n, ticks in unit[2].items()}  # JSON's keys are strings
    json.dump({"open shop": open_shop, "joint": joint}[asked["problem"]](asked), sys.stdout)
