from chemprop import data, models, nn


def molecules():
    names = ["C" * (n % 9 + 1) + "O" * (n % 4) for n in range(80)]
    return data.MoleculeDataset([data.MoleculeDatapoint.from_smi(name, [float(len(name))]) for name in names])


def model(lr):
    return models.MPNN(nn.BondMessagePassing(), nn.MeanAggregation(), nn.RegressionFFN(), init_lr=lr)
