"""Compressed gradients in Lightning: a callback, for the model is wrapped in DDP after you have handed it over.

    pip install lightning
    python lightning_fit.py                               # one process: nothing is sent, the rest is the same
    torchrun --nproc-per-node 4 lightning_fit.py          # four ranks, over Gloo on CPUs, NCCL on GPUs

`DDPStrategy(ddp_comm_hook=...)` is no way in: Lightning takes hooks on GPUs only.
"""

import os
from typing import Any

import lightning as L
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import laconic
from laconic.data import load_digits

N_TRAIN = 1500


class Compress(L.Callback):
    """`laconic.compress` when `fit` starts and `trainer.strategy.model` is wrapped already; `laconic.stats` at its end.

    codec    anything `laconic.compress` takes; `options` are its other arguments, of which a single optimizer is given
    """

    def __init__(self, codec: laconic.Codec | laconic.Quantizer | str | None = None, **options: Any) -> None:
        self.codec, self.options = codec, options

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        laconic.compress(trainer.strategy.model, self.codec, optimizer=optimizer, **self.options)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        said = laconic.stats(trainer.strategy.model)
        if trainer.is_global_zero and trainer.world_size > 1:
            print(f"a step sent {said['bytes_sent']:,.0f} bytes a rank of a gradient of {4 * said['values']:,.0f}")


class Digits(L.LightningModule):
    """A dense network for images of 8 by 8; nothing in it knows of compression."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    """Fit for ten epochs; rank 0 says how it went."""
    L.seed_everything(0, verbose=False)
    images, labels = load_digits()
    batches = DataLoader(TensorDataset(images[:N_TRAIN], labels[:N_TRAIN]), batch_size=32, shuffle=True)
    model = Digits()
    trainer = L.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy="ddp",
        callbacks=[Compress(laconic.NUQSGD(bits=4, bucket_size=512))],
        max_epochs=10,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, batches)
    if trainer.is_global_zero:
        guesses = model.cpu().net(images[N_TRAIN:]).argmax(dim=1)
        print(f"accuracy on {len(guesses)} digits not seen: {(guesses == labels[N_TRAIN:]).float().mean():.3f}")


if __name__ == "__main__":
    main()
