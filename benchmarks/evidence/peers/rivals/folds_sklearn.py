"""scikit-learn's cross_validate in two processes: a model on eight folds.

python folds_sklearn.py {LightGBM,perceptron} {small_table,large_table}
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import functions


def main() -> None:
    _, name, rows = sys.argv
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import cross_validate

    warnings.simplefilter("ignore", ConvergenceWarning)
    if name == "LightGBM":
        from lightgbm import LGBMClassifier

        model = LGBMClassifier(n_estimators=70, num_leaves=31, n_jobs=1, verbose=-1)
    else:
        from sklearn.neural_network import MLPClassifier

        model = MLPClassifier(max_iter=10, random_state=0)
    x, y = getattr(functions, rows)().values()
    began = time.time()
    scores = cross_validate(model, x, y, cv=8, n_jobs=2)["test_score"]
    print(json.dumps({"began": began, "accuracy": float(scores.mean())}))


if __name__ == "__main__":
    main()
