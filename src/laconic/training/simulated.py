"""k workers simulated on one device, as the papers' own experiments are."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from laconic.codec import Codec, codec_for
from laconic.exchange import Accounting, Communicator
from laconic.exchange.base import measure_error
from laconic.options import check_int
from laconic.quantizers import Quantizer
from laconic.training.compressor import Compressor, Settings
from laconic.training.groups import Group, Policy, make_groups, require_policy, trainable


class SimulatedWorkers(Compressor):
    """Gradients of k independent mini-batches, each quantised and dequantised, then averaged.

    It is a compressor whose ranks take turns, each with its own error memory. The result is, bit for bit, that of k
    ranks on CPUs under `compress(..., exchange="all_gather")`, with one exception: there the process group sums float32
    groups of which a rank receives more than 64 KiB, in an order of its own, so that last bits may differ where k > 2.

    model      any module
    codec      a `Codec`, a quantizer or a scheme's name
    n_workers  k
    policy     what stays in float32, and warm-up steps
    seed       of the random streams
    optimizer  as in `laconic.compress`
    metric     what gradients are divided by before they are quantised, as in `laconic.compress`

    `last` adds up what the workers sent at the last step, float32 included, each message counted once; a rank sends
    its own to each of the k − 1 others.

    >>> net = torch.nn.Linear(64, 64)
    >>> workers = SimulatedWorkers(net, "nuqsgd", n_workers=4)
    >>> batches = torch.randn(4, 8, 64)
    >>> workers.backward([lambda x=x: net(x).square().mean() for x in batches])
    >>> net.weight.grad.shape
    torch.Size([64, 64])
    """

    def __init__(
        self,
        model: torch.nn.Module,
        codec: Codec | Quantizer | str,
        n_workers: int,
        *,
        policy: Policy | None = None,
        seed: int = 0,
        optimizer: torch.optim.Optimizer | None = None,
        metric: str = "auto",
    ) -> None:
        self.n_workers, parameters = check_int("n_workers", n_workers, 1), trainable(model)
        policy = replace(require_policy(policy or Policy()), alone=True)
        policy.require_matches(name for name, _ in model.named_parameters())
        settings = Settings(optimizer, metric, "all_gather", policy, seed, error_every=1)
        codec, device = codec_for(codec), next(iter(parameters.values())).device
        groups = make_groups(parameters.items(), policy, codec)
        super().__init__(settings, groups, parameters, device, Communicator(size=n_workers))
        self.memories: list[dict[int, torch.Tensor]] = [{} for _ in range(n_workers)]
        self.use(codec, "asked for")

    def backward(self, losses: Sequence[Callable[[], torch.Tensor]]) -> None:
        """Call each worker's loss, differentiate it, and leave the compressed average in the parameters' `.grad`.

        A parameter that no worker used has none, as under DistributedDataParallel.
        """
        if len(losses) != self.n_workers:
            raise ValueError(f"need {self.n_workers} losses, one per worker, got {len(losses)}")
        if wrong := [type(loss).__name__ for loss in losses if not callable(loss)]:
            raise TypeError(f"each loss must be a function such as lambda: net(x).sum(); got {wrong[0]}")
        averages = [torch.zeros(group.n_values, dtype=torch.float32, device=self.device) for group in self.groups]
        used: set[str] = set()
        self.under_way = Accounting()
        for worker, loss in enumerate(losses):
            for p in self.parameters.values():
                p.grad = None
            loss().backward()  # type: ignore[no-untyped-call]
            gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.parameters.items()}
            used |= {name for name, p in self.parameters.items() if p.grad is not None}
            self.memory = self.memories[worker]
            for group, average in zip(self.groups, averages, strict=True):
                self._add(worker, group, group.flatten(gradients), average)
        for group, average in zip(self.groups, averages, strict=True):
            self.task(group, average)[1].scale.multiply(average)
            if group.compressed:
                self.metric.observe(group, average)
            for name, value in group.views(average).items():
                p = self.parameters[name]
                p.grad = value.to(p.dtype) if name in used else None
        self.finish_step()

    def _add(self, worker: int, group: Group, v: torch.Tensor, average: torch.Tensor) -> None:
        """average += Q(v / m) · (1/k), for one worker's group; in float32 Q changes nothing, and m is 1."""
        _, task = self.task(group, v)
        payload = task.codec.encode(v, replace(task.stream, rank=worker), task.memory, scale=task.scale)
        if task.measure_error:
            measure_error(v, task.codec.decode(payload), self.under_way)
            self.under_way += Accounting(n_coded=v.numel(), code_bytes=payload.n_bytes)
        task.codec.decode_add(payload, average, 1.0 / self.n_workers)
        self.under_way += Accounting(n_exchanges=1, n_values=v.numel(), bytes_sent=payload.n_bytes)
