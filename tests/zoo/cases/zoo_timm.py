import timm
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler


def model(lr):
    net = timm.create_model("test_convnext", num_classes=2, drop_path_rate=0.1)
    optimizer = create_optimizer_v2(net, opt="adamw", lr=lr, weight_decay=0.05)
    return net, optimizer, CosineLRScheduler(optimizer, t_initial=2, warmup_t=1)
