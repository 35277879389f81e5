"""How much quantisation noise a graph can bear: does mixing still shrink disagreement?

Mix without gradients, along an eigenvector of W with eigenvalue λ: y is what the models disagree by, e the error of an
estimate, E‖Q(v) − v‖² ≤ ω ‖v‖², and a = 2/t. One step of ECD-PSGD whose quantizer measures from the estimate is

    y' = λ (y + e),        e' = (1 − a) e + noise,        E noise² ≤ ω ((λ − 1) y + (λ − a) e)²,

linear in the moments (E y², E y e, E e²): stable if and only if the eigenvalues of a 3 × 3 matrix are below 1. For
a = 1, which is DCD-PSGD too, the largest is λ² + ω (1 − λ)²: the noise must stay below (1 + λ_n) / (1 − λ_n). The
average of all models, λ = 1, asks for (1 − a)² (1 + ω) < 1: a clock that runs on for ever (a → 0) always ends up
unstable, unless step sizes fall fast enough.
"""

import math

import torch

from laconic.exchange.topology import Mixing

LONGEST = 64


def amplification(mixing: Mixing, omega: float, t: int) -> float:
    """Factor by which one step changes the mean square of disagreement and error, at worst; stable below 1.

    >>> from laconic.exchange.topology import Ring
    >>> round(amplification(Ring().mixing(4), 0.0, 2), 3), round(amplification(Ring().mixing(4), 0.5, 2), 3)
    (0.111, 1.0)
    """
    a = 2.0 / t
    average = (1 - a) ** 2 * (1 + omega)
    return max([average, *(_mode(x, omega, a) for x in mixing.eigenvalues[1:])])


def noise_limit(mixing: Mixing) -> float:
    """(1 + λ_n) / (1 − λ_n): the ω below which difference compression, and ECD-PSGD held at t = 2, are stable.

    >>> from laconic.exchange.topology import Ring, Torus
    >>> round(noise_limit(Ring().mixing(8)), 3), round(noise_limit(Torus().mixing(16)), 3)
    (0.5, 0.25)
    """
    least = mixing.eigenvalues[-1]
    return (1 + least) / (1 - least) if mixing.size > 1 else math.inf


def held_at(mixing: Mixing, omega: float) -> int | None:
    """Where to hold the clock: the smallest t ≥ 2 at which noise costs at most half of the mixing; None if none is
    stable.

    Half: amplification ≤ (1 + ρ²) / 2 with ρ = 1 − gap, where ρ² would be that of mixing without noise. The smallest t,
    since noise reaches the average of all models with variance ω (t/2)² ‖x' − x‖² a step. If no t is that good, the
    best one that is stable.

    >>> from laconic.exchange.topology import Ring
    >>> [held_at(Ring().mixing(4), omega) for omega in (0.0, 0.15, 0.62, 5.0)]
    [2, 2, 4, None]
    """
    enough = (1 + (1 - mixing.spectral_gap) ** 2) / 2
    factors = {t: amplification(mixing, omega, t) for t in range(2, LONGEST + 1)}
    for t, factor in factors.items():
        if factor <= enough + 1e-9:
            return t
    best = min(factors, key=lambda t: factors[t])
    return best if factors[best] < 1 else None


def _mode(x: float, omega: float, a: float) -> float:
    moments = torch.tensor(
        [
            [x * x, 2 * x * x, x * x],
            [0.0, x * (1 - a), x * (1 - a)],
            [omega * (x - 1) ** 2, 2 * omega * (x - 1) * (x - a), (1 - a) ** 2 + omega * (x - a) ** 2],
        ],
        dtype=torch.float64,
    )
    return float(torch.linalg.eigvals(moments).abs().max())
