"""scikit-learn's searches in two processes: a line of values on five folds of its digits.

    python grids_sklearn.py {grid,halving} ALPHAS

ALPHAS is a list in JSON.
"""

from __future__ import annotations

import json
import sys
import time

from functions import digits


def main() -> None:
    _, way, alphas = sys.argv
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.linear_model import SGDClassifier
    from sklearn.model_selection import GridSearchCV, HalvingRandomSearchCV

    space = {"alpha": json.loads(alphas)}
    model = SGDClassifier(loss="log_loss", max_iter=5, tol=None, random_state=0)
    searches = {
        "grid": lambda: GridSearchCV(model, space, cv=5, n_jobs=2),
        "halving": lambda: HalvingRandomSearchCV(
            model, space, n_candidates=len(space["alpha"]), cv=5, n_jobs=2, random_state=0
        ),
    }
    x, y = digits().values()
    began = time.time()
    search = searches[way]().fit(x, y)
    print(json.dumps({"began": began, "accuracy": float(search.best_score_)}))


if __name__ == "__main__":
    main()
