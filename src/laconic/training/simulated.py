"""k workers simulated on one device: the papers' own way of experimenting."""

from collections.abc import Callable, Sequence

import torch

from laconic.codec import Codec, codec_for
from laconic.exchange import Accounting
from laconic.exchange.encoding import measure_error
from laconic.kernels import Stream
from laconic.quantizers import Quantizer
from laconic.training.groups import make_groups
from laconic.training.policy import Policy


class SimulatedWorkers:
    """Gradients of k independent mini-batches, each quantised and dequantised, then averaged.

    The result is, bit for bit, that of k ranks under `compress(..., exchange="all_gather")`.

    model      any module
    codec      a `Codec`, a quantizer or a scheme's name
    n_workers  k
    policy     what stays in float32
    seed       of the random streams

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
    ) -> None:
        if n_workers < 1:
            raise ValueError(f"n_workers must be at least 1, got {n_workers}")
        self.codec, self.n_workers, self.policy, self.seed = codec_for(codec), n_workers, policy or Policy(), seed
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.groups = make_groups(self.parameters.items(), self.policy)
        self.memory: dict[tuple[int, int], torch.Tensor] = {}
        self.step = 0
        self.last = Accounting()

    def backward(self, losses: Sequence[Callable[[], torch.Tensor]]) -> None:
        """Call each worker's loss, differentiate it, and leave the compressed average in the parameters' `.grad`."""
        if len(losses) != self.n_workers:
            raise ValueError(f"need {self.n_workers} losses, one a worker, got {len(losses)}")
        device = next(iter(self.parameters.values())).device
        averages = [torch.zeros(group.n_values, device=device) for group in self.groups]
        self.last = Accounting(n_exchanges=1)
        for worker, loss in enumerate(losses):
            for p in self.parameters.values():
                p.grad = None
            loss().backward()  # type: ignore[no-untyped-call]
            for group, average in zip(self.groups, averages, strict=True):
                self._add(worker, group.index, average)
        for group, average in zip(self.groups, averages, strict=True):
            for name, value in group.views(average).items():
                p = self.parameters[name]
                p.grad = value.to(p.dtype)
        self.step += 1

    def _add(self, worker: int, index: int, average: torch.Tensor) -> None:
        """average += Q(gradient of one worker's group) / k."""
        group = self.groups[index]
        v = torch.cat([self._gradient(name).reshape(-1).float() for name in group.names])
        weight = 1.0 / self.n_workers
        if not group.compressed or self.step < self.policy.warmup_steps:
            average.add_(v / self.n_workers)
            self.last.bytes_sent += 4 * v.numel()
            return
        memory = self.memory.setdefault((worker, index), self.codec.new_memory(v))
        stream = Stream(seed=self.seed, rank=worker, step=self.step, tensor=index)
        payload = self.codec.encode(v, stream, memory)
        self.codec.decode_add(payload, average, weight)
        self.last.bytes_sent += payload.n_bytes
        self.last.n_values += v.numel()
        measure_error(v, self.codec.decode(payload), self.last)

    def _gradient(self, name: str) -> torch.Tensor:
        p = self.parameters[name]
        return torch.zeros_like(p) if p.grad is None else p.grad
