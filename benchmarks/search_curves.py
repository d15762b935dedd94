"""What `search_curves.yaml` trains, and the summary of its run that `search.py` plays on.

python benchmarks/search_curves.py RUN_FOLDER  writes benchmarks/search_curves.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).with_suffix(".json")


def load() -> dict[str, Any]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return {"image": digits.images.astype("uint8"), "label": digits.target}


def to_input(batch: Any) -> Any:
    image, label = batch
    return image.unsqueeze(1) / 16, label


def model(width: int, dropout: float) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(36 * width, 10)
    )  # fmt: skip


def summary(folder: Path) -> dict[str, Any]:
    """Each config's hyper-parameters, validation error after each epoch, training loss after each unit (of
    the present epoch so far), and seconds of a unit."""
    import cerebro_elastic

    result = cerebro_elastic.Run.open(folder).result
    rows = []
    for row in result.configs.values():
        visits = [visit for visit in row.visits if visit.whole]
        rows.append(
            {
                "hparams": dict(row.hparams),
                "error": [round(1 - epoch["val_accuracy"], 4) for epoch in row.curve],
                "train_loss": [float(f"{visit.metrics['train_loss']:.4g}") for visit in visits],
                "seconds": round(sum(visit.seconds for visit in visits) / len(visits), 4),
            }
        )
    plan = result.spec.plan
    return {"partitions": plan.partitions, "epochs": plan.epochs, "configs": rows}


if __name__ == "__main__":
    curves = summary(Path(sys.argv[1]))
    lines = ",\n".join(json.dumps(row) for row in curves.pop("configs"))
    head = json.dumps(curves)[:-1]
    OUTPUT.write_text(f'{head}, "configs": [\n{lines}\n]}}\n')
    print(f"{OUTPUT}: {OUTPUT.stat().st_size} bytes")
