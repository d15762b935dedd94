import scvi
from scvi.dataloaders import DataSplitter
from scvi.model import SCVI
from scvi.train import TrainingPlan

scvi.settings.seed = 0
CELLS = scvi.data.synthetic_iid(batch_size=100)
SCVI.setup_anndata(CELLS, batch_key="batch")
MODEL = SCVI(CELLS, n_latent=4)


def cells():
    return DataSplitter(MODEL.adata_manager, train_size=0.8, batch_size=32)


def plan(lr):
    return TrainingPlan(SCVI(CELLS, n_latent=4).module, lr=lr)
