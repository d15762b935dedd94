from pathlib import Path

import torch
from anomalib.data import Folder
from anomalib.models import Fastflow
from torchvision.utils import save_image

ROOT = Path("/tmp/zoo_anomalib")


def data():
    for n in range(24):
        path = ROOT / ("good" if n < 20 else "bad") / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_image(torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(n)), path)
    shape = {"train_batch_size": 4, "eval_batch_size": 4, "num_workers": 0}
    return Folder("zoo", root=ROOT, normal_dir="good", abnormal_dir="bad", **shape)


def model():
    return Fastflow("resnet18", pre_trained=False, flow_steps=2, evaluator=False, visualizer=False)
