"""Compressed gradients with Hugging Face Accelerate: one line after `prepare`, which wraps the model in DDP.

    pip install accelerate
    python accelerate_fit.py                              # one process: Accelerate does not wrap, nothing is sent
    torchrun --nproc-per-node 4 accelerate_fit.py         # four ranks; `accelerate launch` does the same

Before `prepare` there is no DDP model yet, and `laconic.compress` says so.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import laconic
from laconic.data import load_digits

N_TRAIN, N_EPOCHS = 1500, 10


def main() -> None:
    """Fit for ten epochs; rank 0 says how it went."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    set_seed(0)
    images, labels = load_digits()
    batches = DataLoader(TensorDataset(images[:N_TRAIN], labels[:N_TRAIN]), batch_size=32, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    model, optimizer, batches = accelerator.prepare(net, optimizer, batches)
    if accelerator.num_processes > 1:
        laconic.compress(model, laconic.NUQSGD(bits=4, bucket_size=512))

    for _ in range(N_EPOCHS):
        for x, y in batches:
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

    if accelerator.num_processes > 1:
        said = laconic.stats(model)
        accelerator.print(
            f"a step sent {said['bytes_sent']:,.0f} bytes a rank of a gradient of {4 * said['values']:,.0f}"
        )
    guesses = accelerator.unwrap_model(model).cpu()(images[N_TRAIN:]).argmax(dim=1)
    accuracy = (guesses == labels[N_TRAIN:]).float().mean()
    accelerator.print(f"accuracy on {len(guesses)} digits not seen: {accuracy:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
