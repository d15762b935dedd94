import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        base = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))
        self.net = get_peft_model(
            base,
            LoraConfig(
                r=2, lora_dropout=0.1, task_type="CAUSAL_LM", target_modules=["c_attn"], fan_in_fan_out=True
            ),
        )

    def training_step(self, batch):
        loss = self.net(input_ids=batch[0], labels=batch[0]).loss
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
