"""The program that solves a schedule with CP-SAT (see ``exact``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_elastic.extending.errors import MissingExtra, install_extra
from cerebro_elastic.extending.planning import left_shifted, serve


def open_shop(question: dict[str, Any]) -> list[tuple[int, int]] | None:
    """Solve an open shop with replicas.

    Args:
        question: ``units`` are (config, epoch, {node: ticks}), in the order of their starts in a schedule
            that is known; ``hint`` has their nodes there. A config's epochs follow one another, its units of
            one epoch have no order. After the last unit of a node and of a config comes a tail
            (``node_tail``, ``config_tail``), the ticks of all that the question leaves out.

    Returns:
        Of each unit the node, and the start in ticks; None if no schedule was found.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    node_tail, config_tail = question["node_tail"], question["config_tail"]
    units, hints = question["units"], question["hint"]
    known = list(
        left_shifted(
            [(i, n, 1, takers[n]) for n, (i, _, takers) in zip(hints, units, strict=True)],
            question["config_ready"],
            [[ready] for ready in question["node_ready"]],
        )
    )
    spans = [
        (start, start + takers[n], max(node_tail[n], config_tail[i]))
        for start, n, (i, _, takers) in zip(known, hints, units, strict=True)
    ]
    length = max(end + tail for _, end, tail in spans)
    by_node: dict[int, list[Any]] = {}
    by_config: dict[int, list[Any]] = {}
    last = model.new_int_var(0, length, "makespan")
    model.add_hint(last, length)
    # By config and epoch: when the epoch is over and the next one may begin.
    epoch_ends = {(i, epoch): model.new_int_var(0, length, "") for i, epoch, _ in units}
    known_ends: dict[tuple[int, int], int] = {}
    for (i, epoch, _), (_, end, _) in zip(units, spans, strict=True):
        known_ends[i, epoch] = max(end, known_ends.get((i, epoch), 0))
    for which, variable in epoch_ends.items():
        model.add_hint(variable, known_ends[which])
    choices = []
    for (i, epoch, takers), hinted, when in zip(units, hints, known, strict=True):
        of_unit = []
        for n, ticks in takers.items():
            ready = max(question["node_ready"][n], question["config_ready"][i])
            tail = max(node_tail[n], config_tail[i])
            start = model.new_int_var(ready, max(ready, length - ticks - tail), "")
            model.add_hint(start, when if n == hinted else ready)
            present, only = None, []
            if len(takers) > 1:
                present = model.new_bool_var("")
                model.add_hint(present, n == hinted)
                span = model.new_optional_fixed_size_interval_var(start, ticks, present, "")
                only = [present]
            else:
                span = model.new_fixed_size_interval_var(start, ticks, "")
            by_node.setdefault(n, []).append(span)
            by_config.setdefault(i, []).append(span)
            if (i, epoch + 1) in epoch_ends:
                model.add(start + ticks <= epoch_ends[i, epoch]).only_enforce_if(only)
            else:
                model.add(last >= start + ticks + tail).only_enforce_if(only)
            if (i, epoch - 1) in epoch_ends:
                model.add(start >= epoch_ends[i, epoch - 1]).only_enforce_if(only)
            of_unit.append((start, present, n))
        if len(of_unit) > 1:
            model.add_exactly_one(present for _, present, _ in of_unit)
        choices.append(of_unit)
    for exclusive in (*by_node.values(), *by_config.values()):
        model.add_no_overlap(exclusive)
    model.minimize(last)
    solver = _solved(model, question)
    if solver is None:
        return None
    return [
        next(
            (n, solver.value(start))
            for start, present, n in of_unit
            if present is None or solver.value(present)
        )
        for of_unit in choices
    ]


def joint(question: dict[str, Any]) -> dict[str, Any] | None:
    """Solve the joint problem. The numbers in comments are the thesis' equations' (see
    ``exact``).

    Returns:
        ``units``, (config, node, width, start in ticks) by start, and ``bound``, a lower bound of the
        makespan in ticks; None if no schedule was found.
    """
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
        for n, by_width in enumerate(nodes):
            hinted, when = hints[i, n]
            # One start for all devices of a unit (4.5, 4.6), not negative (4.13).
            start = model.new_int_var(0, length, "")
            model.add_hint(start, round(when))
            of_unit = []
            for g, ticks in enumerate(by_width, start=1):
                if ticks is None:
                    continue
                present = model.new_bool_var("")
                span = model.new_optional_fixed_size_interval_var(start, ticks, present, "")
                of_config.append(span)
                on_node[n].append(span)
                widths[n].append(g)
                model.add(last >= start + ticks).only_enforce_if(present)  # 4.1
                model.add_hint(present, g == hinted)
                of_unit.append(present)
                options.append((start, ticks, present, (i, n, g)))
            model.add_exactly_one(of_unit)  # 4.2
        model.add_no_overlap(of_config)  # 4.10 to 4.12, 4.14
    for spans, demands, capacity in zip(on_node, widths, devices, strict=True):
        model.add_cumulative(spans, demands, capacity)  # 4.3, 4.4, 4.7 to 4.9
    model.minimize(last)
    solver = _solved(model, question)
    if solver is None:
        return None
    return {"units": _by_start(solver, options), "bound": solver.best_objective_bound}


def _solved(model: Any, question: dict[str, Any]) -> Any:
    """The solver, with the best schedule found; None if it found none."""
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
    """The units of those ``options`` (start, ticks, whether it is present, unit) that are present, each
    with its start."""
    units = [
        (solver.value(start), ticks, unit) for start, ticks, present, unit in options if solver.value(present)
    ]
    return [(*unit, start) for start, _, unit in sorted(units)]


def _solve(question: Mapping[str, Any]) -> dict[str, Any]:
    try:
        import ortools  # noqa: F401
    except ImportError as exc:
        raise MissingExtra(f"the policy exact needs ortools: {install_extra('exact')}, or take auto") from exc
    for unit in question.get("units", ()):
        unit[2] = {int(n): ticks for n, ticks in unit[2].items()}  # JSON's keys are strings
    return {"answer": {"open shop": open_shop, "joint": joint}[question["problem"]](dict(question))}


if __name__ == "__main__":
    serve(_solve)
