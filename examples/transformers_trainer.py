"""Compressed gradients in the Trainer of Hugging Face Transformers: a callback, for `train` wraps the model in DDP.

    pip install transformers accelerate
    python transformers_trainer.py                        # one process: nothing is sent, the rest is the same
    torchrun --nproc-per-node 4 transformers_trainer.py   # four ranks, over Gloo on CPUs, NCCL on GPUs

The Trainer's optimizer is AdamW. Without a codec, laconic takes `Dithered` for it, or on GPUs NUQSGD.
"""

import tempfile
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

import laconic
from laconic.data import load_digits

N_TRAIN = 1500


class Compress(TrainerCallback):
    """`laconic.compress` from the beginning of `train`, when `trainer.model_wrapped` is in DDP, to its end.

    codec    anything `laconic.compress` takes; `options` are its other arguments
    """

    def __init__(
        self, trainer: Trainer, codec: laconic.Codec | laconic.Quantizer | str | None = None, **options: Any
    ) -> None:
        self.trainer, self.codec, self.options = trainer, codec, options

    def on_train_begin(self, args: TrainingArguments, *event: Any, **objects: Any) -> None:
        if args.world_size > 1:
            model, optimizer = self.trainer.model_wrapped, self.trainer.optimizer
            self.compressor = laconic.compress(model, self.codec, optimizer=optimizer, **self.options)

    def on_train_end(self, args: TrainingArguments, *event: Any, **objects: Any) -> None:
        if args.world_size > 1:
            said = laconic.stats(self.trainer.model_wrapped)
            self.compressor.close()  # another call of `train` has another optimizer, and compresses again
            if self.trainer.is_world_process_zero():
                print(f"a step sent {said['bytes_sent']:,.0f} bytes a rank of a gradient of {4 * said['values']:,.0f}")


def network() -> ViTForImageClassification:
    """A small vision transformer for images of 8 by 8; nothing in it knows of compression."""
    sizes = {"image_size": 8, "patch_size": 2, "num_channels": 1, "hidden_size": 64, "intermediate_size": 128}
    return ViTForImageClassification(ViTConfig(num_hidden_layers=2, num_attention_heads=4, num_labels=10, **sizes))


def main() -> None:
    """Train for ten epochs; rank 0 says how it went."""
    set_seed(0)
    images, labels = load_digits()
    rows = [{"pixel_values": x.view(1, 8, 8), "labels": y} for x, y in zip(images, labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=10,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            ddp_find_unused_parameters=False,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(network(), args, train_dataset=rows[:N_TRAIN])
        trainer.add_callback(Compress(trainer))
        trainer.train()
        guesses = torch.from_numpy(trainer.predict(rows[N_TRAIN:]).predictions).argmax(dim=1)
    if trainer.is_world_process_zero():
        accuracy = (guesses == labels[N_TRAIN:]).float().mean()
        print(f"accuracy on {len(guesses)} digits not seen: {accuracy:.3f}")


if __name__ == "__main__":
    main()
