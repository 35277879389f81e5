"""A linear probe: how well do frozen features of a network tell classes apart that it was never trained on?

A small convolutional network learns the digits 0 to 4. Its last hidden layer, frozen, is then the input of a
multinomial regression for the digits 5 to 9, `laconic.CASGDClassifier`, with the features kept in bfloat16
(`recipe="C"`). The penalty `alpha` is swept from strong to weak, each fit beginning where the last one ended.

    python linear_probe.py
    torchrun --nproc-per-node 4 linear_probe.py           # each rank holds a quarter of the features
"""

import os
import time

import torch
from torch.nn.functional import cross_entropy

from laconic import CASGDClassifier
from laconic.data import load_digits

ALPHAS = (100, 10, 1, 0.1, 0.01, 0.001)
N_TRAIN, N_VALIDATION = 300, 300  # rows; the other 296 are for the last line


def pretrained(images: torch.Tensor, labels: torch.Tensor, n_steps: int = 50) -> torch.nn.Module:
    """A network of 512 features, trained on these images; the same on every rank, as the seed is."""
    torch.manual_seed(0)
    features = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
    )
    head = torch.nn.Linear(512, 5)
    optimizer = torch.optim.SGD([*features.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    for _ in range(n_steps):
        rows = torch.randint(len(images), (64,))
        loss = cross_entropy(head(features(images[rows])), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return features.requires_grad_(False)


def main() -> None:
    """Features once, then one fit an alpha; rank 0 prints the table."""
    say = print if int(os.environ.get("RANK", 0)) == 0 else lambda line: None
    images, labels = load_digits()
    images = images.view(-1, 1, 8, 8)
    seen = labels < 5
    X, y = pretrained(images[seen], labels[seen])(images[~seen]), labels[~seen]
    a, b = N_TRAIN, N_TRAIN + N_VALIDATION
    mean, deviation = X[:a].mean(dim=0), X[:a].std(dim=0)
    X = (X - mean) / (deviation + 1e-3)  # SGD likes columns of one size

    say(f"{a} rows of {X.shape[1]} frozen features, 5 classes the network has not seen")
    say("   alpha  epochs  seconds  accuracy on validation rows")
    model, best = CASGDClassifier(recipe="C", tol=1e-3, warm_start=True, random_state=0), (0.0, 0.0, 0.0)
    began = time.perf_counter()
    for alpha in ALPHAS:
        start = time.perf_counter()
        model.set_params(alpha=alpha).fit(X[:a], y[:a])
        seconds, accuracy = time.perf_counter() - start, model.score(X[a:b], y[a:b])
        say(f"{alpha:8g}  {model.n_iter_:6d}  {seconds:7.2f}  {accuracy:.3f}")
        best = max(best, (accuracy, alpha, model.score(X[b:], y[b:])))
    say(f"the sweep took {time.perf_counter() - began:.1f} s; what ran: {model.ran_}")
    say(f"best alpha {best[1]:g}: accuracy {best[2]:.3f} on the {len(y) - b} rows kept for the end")


if __name__ == "__main__":
    main()
