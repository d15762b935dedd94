import lightning as L
import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        blocks = {"block_out_channels": (8, 8), "norm_num_groups": 4, "layers_per_block": 1}
        self.net = UNet2DModel(
            8, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2, **blocks
        )
        self.noise = DDPMScheduler(100)
        self.ema = EMAModel(self.net.parameters(), decay=0.9)

    def training_step(self, batch):
        small = batch[0][..., ::4, ::4]
        noise, steps = torch.randn_like(small), torch.randint(0, 100, (len(small),))
        made = self.net(self.noise.add_noise(small, noise, steps), steps).sample
        loss = torch.nn.functional.mse_loss(made, noise)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def on_train_batch_end(self, *_):
        self.ema.step(self.net.parameters())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
