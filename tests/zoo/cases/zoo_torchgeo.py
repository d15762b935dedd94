import torch
from torchgeo.datasets import NonGeoDataset
from torchgeo.trainers import ClassificationTask


class Scenes(NonGeoDataset):
    def __len__(self):
        return 32

    def __getitem__(self, n):
        image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(n))
        return {"image": image, "label": torch.tensor(n % 2)}


def scenes():
    return Scenes()


def model(lr):
    return ClassificationTask("resnet18", in_channels=3, task="multiclass", num_classes=2, lr=lr)
