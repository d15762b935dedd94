"""AutoGluon's bagging: a model on eight folds, one after the other or in processes of Ray's.

python folds_autogluon.py {LightGBM,perceptron} {small_table,large_table} {sequential,parallel}
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

import functions

MODELS = {"LightGBM": {"GBM": {"num_boost_round": 70}}, "perceptron": {"NN_TORCH": {"num_epochs": 10}}}


def main() -> None:
    _, name, rows, way = sys.argv
    import pandas as pd
    from autogluon.tabular import TabularPredictor

    columns = getattr(functions, rows)()
    frame = pd.DataFrame(columns["x"]).add_prefix("x").assign(y=columns["y"])
    with tempfile.TemporaryDirectory(prefix="ag-") as folder:
        began = time.time()
        predictor = TabularPredictor("y", path=folder, verbosity=0, eval_metric="accuracy").fit(
            frame,
            hyperparameters=MODELS[name],
            num_bag_folds=8,
            num_bag_sets=1,
            fit_weighted_ensemble=False,
            calibrate=False,
            num_cpus=2,
            num_gpus=0,
            ag_args_ensemble={"fold_fitting_strategy": f"{way}_local"},
        )
        accuracy = predictor.leaderboard()["score_val"].max()
    print(json.dumps({"began": began, "accuracy": float(accuracy)}))


if __name__ == "__main__":
    main()
