"""k workers simulated on one device, as the papers' own experiments are."""

from collections.abc import Callable, Sequence

import torch

from laconic.codec import Codec, codec_for
from laconic.exchange import Accounting
from laconic.exchange.base import measure_error
from laconic.kernels import Scale, Stream
from laconic.options import MAX_SEED, check_int
from laconic.quantizers import Quantizer
from laconic.training.groups import PLAIN, Group, Policy, make_groups, trainable
from laconic.training.metric import metric_for, unwrapped


class SimulatedWorkers:
    """Gradients of k independent mini-batches, each quantised and dequantised, then averaged.

    The result is, bit for bit, that of k ranks on CPUs under `compress(..., exchange="all_gather")`, with one
    exception: groups in float32 of which a rank there receives more than 64 KiB are summed by the process group, in an
    order of its own, so that last bits may differ where k > 2.

    model      any module
    codec      a `Codec`, a quantizer or a scheme's name
    n_workers  k
    policy     what stays in float32, and warm-up steps
    seed       of the random streams
    optimizer  and
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
        self.codec, self.n_workers = codec_for(codec), check_int("n_workers", n_workers, 1)
        self.policy, self.seed = policy or Policy(), check_int("seed", seed, 0, MAX_SEED)
        self.parameters = trainable(model)
        self.groups = make_groups(self.parameters.items(), self.policy)
        self.metric = metric_for(metric, unwrapped(optimizer), self.parameters, self.codec)
        self.memory: dict[tuple[int, int], torch.Tensor] = {}
        self.step = 0
        self.last = Accounting()

    def backward(self, losses: Sequence[Callable[[], torch.Tensor]]) -> None:
        """Call each worker's loss, differentiate it, and leave the compressed average in the parameters' `.grad`."""
        if len(losses) != self.n_workers:
            raise ValueError(f"need {self.n_workers} losses, one per worker, got {len(losses)}")
        device = next(iter(self.parameters.values())).device
        averages = [torch.zeros(group.n_values, device=device) for group in self.groups]
        scales = [self._scale(group) for group in self.groups]
        self.last = Accounting()
        for worker, loss in enumerate(losses):
            for p in self.parameters.values():
                p.grad = None
            loss().backward()  # type: ignore[no-untyped-call]
            for group, scale, average in zip(self.groups, scales, averages, strict=True):
                self._add(worker, group, scale, average)
        for group, scale, average in zip(self.groups, scales, averages, strict=True):
            if scale is not None:
                scale.multiply(average)
            if group.compressed:
                self.metric.observe(group, average)
            for name, value in group.views(average).items():
                p = self.parameters[name]
                p.grad = value.to(p.dtype)
        self.step += 1

    def _scale(self, group: Group) -> Scale | None:
        """What the group's values are divided by at this step; None where they go in float32."""
        return self.metric.scale(group) if group.compressed and self.step >= self.policy.warmup_steps else None

    def _add(self, worker: int, group: Group, scale: Scale | None, average: torch.Tensor) -> None:
        """average += Q(gradient of one worker's group / m) · (1/k); in float32 Q changes nothing, and m is 1."""
        v = torch.cat([self._gradient(name).reshape(-1).float() for name in group.names])
        stream = Stream(self.seed, worker, self.step, group.index)
        if scale is None:
            codec, payload = PLAIN, PLAIN.encode(v, stream)
        else:
            own, memory = self.policy.codec_of(group, self.codec), self._memory_of(worker, group, v)
            codec = self.metric.codec(own, group)
            scale.divide(v)
            scale.divide(memory)
            payload = codec.encode(v, stream, memory)
            scale.multiply(memory)
            measure_error(v, codec.decode(payload), self.last)
            self.last += Accounting(n_coded=v.numel(), code_bytes=payload.n_bytes)
        codec.decode_add(payload, average, 1.0 / self.n_workers)
        self.last += Accounting(n_exchanges=1, n_values=v.numel(), bytes_sent=payload.n_bytes)

    def _memory_of(self, worker: int, group: Group, v: torch.Tensor) -> torch.Tensor:
        """One worker's error memory of a group, made at first need."""
        if (worker, group.index) not in self.memory:
            self.memory[worker, group.index] = self.policy.codec_of(group, self.codec).new_memory(v)
        return self.memory[worker, group.index]

    def _gradient(self, name: str) -> torch.Tensor:
        p = self.parameters[name]
        return torch.zeros_like(p) if p.grad is None else p.grad
