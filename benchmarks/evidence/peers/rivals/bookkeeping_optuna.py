"""Two processes that share a study of Optuna's by a journal: many trials of a second.

python bookkeeping_optuna.py TRIALS SECONDS
"""

from __future__ import annotations

import sys
import time
from typing import Any

from optuna_pair import pair


def main() -> None:
    trials, seconds = int(sys.argv[1]), float(sys.argv[2])

    def objective(trial: Any) -> float:
        score: float = trial.suggest_float("score", 0.0, 1.0)
        time.sleep(seconds)
        return score

    pair(objective, trials)


if __name__ == "__main__":
    main()
