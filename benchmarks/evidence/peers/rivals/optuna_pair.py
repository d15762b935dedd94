"""Two processes on one study, as Optuna's guide to distributed optimization has it on one machine."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections.abc import Callable
from typing import Any

PROCESSES = 2


def pair(objective: Callable[[Any], float], trials: int) -> None:
    """Make ``trials`` trials, and print what came of them. The study has the sampler and the pruner that
    Optuna gives where nobody says: TPE and the median."""
    import optuna

    with tempfile.TemporaryDirectory(prefix="optuna-") as folder:

        def study() -> optuna.Study:
            journal = optuna.storages.journal.JournalFileBackend(f"{folder}/journal")
            storage = optuna.storages.JournalStorage(journal)
            return optuna.create_study(
                study_name="pair", direction="maximize", storage=storage, load_if_exists=True
            )

        def work() -> None:
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
            enough = optuna.study.MaxTrialsCallback(trials, states=states)
            study().optimize(objective, callbacks=[enough])

        study()
        fork = multiprocessing.get_context("fork")
        workers = [fork.Process(target=work) for _ in range(PROCESSES)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = study().trials
    assert len(found) >= trials
    began = min(trial.datetime_start.timestamp() for trial in found if trial.datetime_start)
    units = sum(max(1, len(trial.intermediate_values)) for trial in found)
    print(json.dumps({"began": began, "units": units, "accuracy": study_best(found)}))


def study_best(trials: list[Any]) -> float:
    """The best value of all epochs, of pruned trials too."""
    return max(max(trial.intermediate_values.values(), default=trial.value or 0.0) for trial in trials)
