"""Compares configs that take turns in one process, as those of a rank do, each with itself alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from cerebro_elastic.runs.exactness.compare import ExactnessCheck, Trainer, Training
from cerebro_elastic.runs.exactness.differences import differences, explain_together, steady
from cerebro_elastic.runs.exactness.fork import ChildDied, call_in_fork


def differ_together(checks: Sequence[ExactnessCheck]) -> Mapping[int, str]:
    """Train the units of all ``checks``, which are done, in turns in one process. By the index of each that
    then differs from itself alone: in what. None if it could not be found out."""
    deadline = monotonic() + sum(check.seconds for check in checks)
    with TemporaryDirectory(dir=checks[0].folder) as states:
        steps = [Trainer(check, states, deadline).steps() for check in checks]

        def in_turns() -> dict[str, Any]:
            while any(each.left for each in steps):
                for each in steps:
                    if each.left:
                        each.train_here()
            return {"trainings": [asdict(each.training) for each in steps]}

        try:
            answer = call_in_fork(in_turns, deadline - monotonic())
        except ChildDied:
            return {}
    stories = {}
    for at, (check, found) in enumerate(zip(checks, answer["trainings"], strict=True)):
        together = Training.of_json(found)
        if together.error is not None:
            stories[at] = explain_together(together.error)
        elif rest := steady(differences(check.alone.all, together.all), check.varying):
            stories[at] = explain_together(rest)
    return stories
