import lightning as L
from matgl.ext.pymatgen import Structure2Graph
from matgl.graph.data import MGLDataLoader, MGLDataset
from matgl.models import MEGNet
from matgl.utils.training import ModelLightningModule
from pymatgen.core import Lattice, Structure

CRYSTALS = [
    Structure(Lattice.cubic(3 + n / 40), ["Mo", "S"], [[0, 0, 0], [0.5, 0.5, 0.5]]) for n in range(40)
]


class Data(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        graphs = Structure2Graph(element_types=("Mo", "S"), cutoff=4.0)
        labels = {"gap": [float(n % 5) for n in range(40)]}
        rows = MGLDataset(structures=CRYSTALS, labels=labels, converter=graphs, save_cache=False)
        self.loaders = MGLDataLoader(rows, rows, batch_size=8, num_workers=0)

    def train_dataloader(self):
        return self.loaders[0]

    def val_dataloader(self):
        return self.loaders[1]


def model(lr):
    net = MEGNet(
        dim_node_embedding=8,
        dim_edge_embedding=16,
        dim_state_embedding=2,
        nblocks=1,
        element_types=("Mo", "S"),
    )
    return ModelLightningModule(net, lr=lr)
