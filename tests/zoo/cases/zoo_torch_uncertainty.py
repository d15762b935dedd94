import torch
from torch_uncertainty.methods import mc_dropout
from torch_uncertainty.routines import ClassificationRoutine


def model(lr):
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    net = mc_dropout(net, num_estimators=3)
    return ClassificationRoutine(
        net, num_classes=2, loss=torch.nn.CrossEntropyLoss(), is_ensemble=True, optim_recipe=optimizer
    )
