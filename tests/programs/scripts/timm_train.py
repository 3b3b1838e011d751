"""Train a timm model with its own loss, optimizer factory, scheduler and meters, in the manner of timm's train.py."""

import time
from contextlib import suppress

import cpu_torchvision  # noqa: F401
import timm
import torch
from timm import utils
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

utils.random_seed(42, 0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
amp_autocast = suppress
num_classes = 8
model = timm.create_model(
    "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=num_classes
)
model.to(device)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
model_ema = utils.ModelEmaV3(model, decay=0.99)
model = torch.compile(model, backend="aot_eager")
scheduler = CosineLRScheduler(optimizer, t_initial=2)
mixup_fn = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=num_classes)
train_loss_fn = SoftTargetCrossEntropy().to(device)
validate_loss_fn = torch.nn.CrossEntropyLoss().to(device)
images = torch.utils.data.TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(0, num_classes, (64,)))
loader_train = torch.utils.data.DataLoader(images, batch_size=8, shuffle=True, drop_last=True)
loader_eval = torch.utils.data.DataLoader(images, batch_size=8)


def train_one_epoch(epoch):
    model.train()
    update_time_m = utils.AverageMeter()
    losses_m = utils.AverageMeter()
    update_start_time = time.time()
    for batch_idx, (input, target) in enumerate(loader_train):
        input, target = input.to(device), target.to(device)
        input, target = mixup_fn(input, target)
        with amp_autocast():
            output = model(input)
            loss = train_loss_fn(output, target)
        optimizer.zero_grad()
        loss.backward()
        utils.dispatch_clip_grad(model.parameters(), 1.0, mode="norm")
        optimizer.step()
        model_ema.update(model, step=epoch * len(loader_train) + batch_idx)
        losses_m.update(loss.item() * 1, input.size(0))
        update_time_m.update(time.time() - update_start_time)
        update_start_time = time.time()
        if batch_idx % 4 == 0:
            print(f"Train: {epoch} [{batch_idx}/{len(loader_train)}] Loss: {losses_m.val:#.3g} ({losses_m.avg:#.3g})")
    return losses_m.avg


def validate():
    losses_m = utils.AverageMeter()
    top1_m = utils.AverageMeter()
    model.eval()
    with torch.no_grad():
        for input, target in loader_eval:
            input, target = input.to(device), target.to(device)
            with amp_autocast():
                output = model(input)
                loss = validate_loss_fn(output, target)
            acc1, _ = utils.accuracy(output, target, topk=(1, 5))
            losses_m.update(loss.item(), input.size(0))
            top1_m.update(acc1.item(), output.size(0))
    print(f"Test: Loss: {losses_m.avg:>6.3f} Acc@1: {top1_m.avg:>7.3f}")


for epoch in range(2):
    train_one_epoch(epoch)
    validate()
    scheduler.step(epoch + 1)
