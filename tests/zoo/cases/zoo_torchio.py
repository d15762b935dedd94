import lightning as L
import torch
import torchio as tio


class Data(L.LightningDataModule):
    def train_dataloader(self):
        scans = torch.rand(24, 1, 8, 8, 8, generator=torch.Generator().manual_seed(0))
        subjects = [
            tio.Subject(mri=tio.ScalarImage(tensor=scan), label=n % 2) for n, scan in enumerate(scans)
        ]
        steps = tio.Compose([tio.RandomFlip(), tio.RandomNoise(), tio.ZNormalization()])
        return tio.SubjectsLoader(tio.SubjectsDataset(subjects, transform=steps), batch_size=4, shuffle=True)


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Sequential(
            torch.nn.Conv3d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 6**3, 2)
        )

    def training_step(self, batch):
        loss = torch.nn.functional.cross_entropy(self.net(batch["mri"][tio.DATA]), batch["label"])
        self.log("train_loss", loss, on_epoch=True, batch_size=4)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
