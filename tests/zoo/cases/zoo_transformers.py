import lightning as L
import torch
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        self.net = BertForSequenceClassification(BertConfig(vocab_size=50, **shape))

    def training_step(self, batch):
        loss = self.net(input_ids=batch[0], labels=batch[1]).loss
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        warm = get_linear_schedule_with_warmup(optimizer, 2, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm, "interval": "step"}}
