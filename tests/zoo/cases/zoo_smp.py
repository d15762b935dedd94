import segmentation_models_pytorch as smp
import torch

LOSS = smp.losses.DiceLoss("binary")


def model(lr):
    net = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=1)
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
