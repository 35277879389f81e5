"""Nine knobs: what is legal, what the recipes are, and that each knob rounds its own quantity and nothing before it."""

import dataclasses
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import laconic
from glm.tables import FAMILIES, arrays, plain, stored
from laconic.exchange import Communicator
from laconic.glm import KNOBS, RECIPES, FitOptions, Precision, Problem, begin, recipe, solve
from laconic.glm.rows import DenseRows, SampledRows
from laconic.glm.solvers import ca_sgd, sgd
from laconic.kernels.formats import FORMATS, format_named
from laconic.kernels.glm import triangle_size
from laconic.kernels.reference import recurrence as reference

# --- formats ----------------------------------------------------------------------------------------------------------

floats = st.integers(0, 2**32 - 1).map(lambda bits: float(np.array([bits], np.uint32).view(np.float32)[0]))


def tf32(x: float) -> float:
    """Bit by bit: ten of float32's 23 bits after the point are kept, ties to even."""
    if not np.isfinite(x):
        return x
    bits = int(np.array([x], np.float32).view(np.uint32)[0])
    kept, rest = bits >> 13, bits & 0x1FFF
    if rest > 0x1000 or (rest == 0x1000 and kept & 1):
        kept += 1
    return float(np.array([kept << 13], np.uint32).view(np.float32)[0])


@settings(max_examples=500, deadline=None)
@given(floats)
def test_rounding_is_torch_s_cast(value):
    x = torch.tensor([value])
    for name, fmt in FORMATS.items():
        expected = x.to(fmt.dtype).float() if fmt.dtype else torch.tensor([tf32(value)])
        assert torch.equal(fmt.round(x).nan_to_num(7.0), expected.nan_to_num(7.0)), name
        assert torch.equal(fmt.round(x).signbit(), expected.signbit()) or value != value


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=list(FORMATS))
def test_rounding(fmt):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    once = fmt.round(x)
    assert once.dtype == torch.float32
    assert torch.equal(fmt.round(once), once)
    assert torch.equal(fmt.round(-x), -once)
    normal = x.abs() > 0.02  # the eight-bit formats have few numbers below
    assert ((once - x).abs() <= fmt.unit_roundoff * x.abs())[normal].all()
    assert (once == x).all() == (fmt.precision >= 24)
    assert fmt.round(torch.empty(0)).shape == (0,)
    assert fmt.round(x.double()).dtype == torch.float64
    assert torch.equal(fmt.round(torch.tensor([0.0, -0.0])).signbit(), torch.tensor([False, True]))


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if f.precision < 24], ids=lambda f: f.name)
def test_ties_go_to_even_and_neighbours_do_not(fmt):
    step = 2.0 ** (1 - fmt.precision)
    x = torch.tensor([1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 2**-20, 1 + 3 * step / 2 - 2**-20])
    assert fmt.round(x).tolist() == [1, 1 + 2 * step, 1 + step, 1 + step]


@pytest.mark.parametrize("name", ["fp64", "fp32", "tf32", "fp16", "bf16", "fp8-e5m2"])
def test_what_is_not_finite_stays_so(name):
    x = torch.tensor([torch.inf, -torch.inf, torch.nan])
    once = FORMATS[name].round(x)
    assert torch.equal(once[:2], x[:2])
    assert once[2].isnan()


def test_too_large_for_the_format_is_infinite():
    for name, largest in (("bf16", 3.3895e38), ("tf32", 3.4011e38), ("fp16", 65504.0)):
        assert FORMATS[name].round(torch.tensor([largest])).isfinite()
        assert FORMATS[name].round(torch.tensor([min(largest * 1.01, 3.4028e38)])).isinf()


def test_a_wider_format_holds_a_narrower_one():
    assert FORMATS["tf32"].holds(FORMATS["bf16"])
    assert not FORMATS["bf16"].holds(FORMATS["tf32"])
    with pytest.raises(ValueError, match="unknown number format 'half'; choose one of fp64, fp32, tf32, fp16, bf16"):
        format_named("half")


# --- recipes and checks -----------------------------------------------------------------------------------------------

LOWERED = {
    "fp32": {},
    "C": dict.fromkeys(("data", "margin", "gram_operand"), "bf16"),
    "D": dict.fromkeys(("data", "margin", "gram_operand", "gram_wire", "update"), "bf16"),
    "fp64": dict.fromkeys(KNOBS, "fp64"),
}


def test_recipes_are_names_over_nine_values():
    assert len(KNOBS) == 9
    assert set(RECIPES) == set(LOWERED)
    for name, lowered in LOWERED.items():
        assert recipe(name) == Precision(**lowered)
        assert recipe(name).short_name() == name
    own = Precision(update="fp16")
    assert recipe(own) is own
    with pytest.raises(ValueError, match="unknown recipe='E'; choose one of fp32, fp64, C, D, auto, auto:1e-3"):
        recipe("E")


@pytest.mark.parametrize(
    ("precision", "name"),
    [
        (Precision(residual="tf32"), "fp32 residual=tf32"),
        (replace(recipe("C"), weights="bf16"), "C weights=bf16"),
        (replace(recipe("D"), update="fp16"), "D update=fp16"),
        (replace(recipe("fp64"), margin="fp32"), "fp64 margin=fp32"),
    ],
)
def test_short_names_say_what_differs_from_the_nearest_recipe(precision, name):
    assert precision.short_name() == name


def test_a_precision_is_a_value():
    codec = laconic.codec("qsgdinf", bits=8)
    a, b = Precision(gram_wire=codec), Precision(gram_wire=laconic.codec("qsgdinf", bits=8))
    assert a == b
    assert hash(a) == hash(b)
    assert len({a, b, Precision(), recipe("fp32"), recipe("C")}) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.data = "bf16"
    assert a.format("gram_wire") == FORMATS["fp32"]
    assert "gram_wire=Codec(quantizer=QSGDInf(bits=8" in a.short_name()


WRONG = [
    ({"data": "tf32"}, ValueError, "data='tf32' cannot be stored; choose one of fp64, fp32, bf16, fp16"),
    ({"gram_wire": "tf32"}, ValueError, "gram_wire='tf32' cannot go over a wire; choose one of .* or a Codec"),
    ({"margin": "bf8"}, ValueError, "unknown number format 'bf8'; choose one of"),
    ({"update": torch.bfloat16}, TypeError, "update must be the name of a number format, got torch.bfloat16"),
    ({"margin": laconic.codec("qsgd")}, TypeError, "margin must be the name of a number format"),
    (
        {"gram_accumulate": "bf16"},
        ValueError,
        "gram_accumulate='bf16' is less precise than gram_operand='fp32'; set gram_accumulate='fp32' or lower gram_op",
    ),
]


@pytest.mark.parametrize(("knobs", "kind", "message"), WRONG)
def test_what_cannot_be_says_so_at_once(knobs, kind, message):
    with pytest.raises(kind, match=message):
        Precision(**knobs)


def test_the_carrier_is_double_where_any_knob_asks_for_it():
    assert recipe("D").carrier == torch.float32
    for knob in KNOBS:
        p = Precision(**({knob: "fp64"} | ({"gram_accumulate": "fp64"} if knob == "gram_operand" else {})))
        assert p.carrier == torch.float64
        assert p.is_plain(knob)
        assert not p.is_plain("residual", knob) or knob == "residual"


# --- one knob, one quantity -------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What one outer iteration computes, in the order in which it does."""

    Y: list = field(default_factory=list)
    margins: list = field(default_factory=list)
    triangle: list = field(default_factory=list)
    wire: list = field(default_factory=list)
    block_margins: list = field(default_factory=list)
    block_triangle: list = field(default_factory=list)
    z: list = field(default_factory=list)
    r: list = field(default_factory=list)
    p: list = field(default_factory=list)
    step: list = field(default_factory=list)
    x: list = field(default_factory=list)


QUANTITIES = [f.name for f in dataclasses.fields(Seen)]


@dataclasses.dataclass(frozen=True)
class OtherRanksHoldZeros(Communicator):
    """A communicator of two ranks; what the other one adds is nothing."""

    size: int = 2
    seen: Seen = dataclasses.field(default_factory=Seen)

    def all_reduce(self, v: torch.Tensor, *, phase: int = 0):
        if v.numel() > 1:  # not the penalty
            self.seen.wire.append(v.clone())
        return lambda: None


def look(monkeypatch, precision: Precision, solver: str = "ca_sgd") -> Seen:
    """One outer iteration of four batches (or four of SGD), from weights that no short format can hold."""
    seen, stored_as = Seen(), precision.format("data").storage
    data = arrays("bernoulli")
    X = data["X"].repeat(1, 12)  # 72 columns: more than one group of an emulated accumulator
    problem = Problem(
        stored(X, "dense", stored_as), plain(FAMILIES["bernoulli"]), data["y"], data["weights"], rows=np.arange(20)
    )
    options = FitOptions(
        solver=solver,
        s=4,
        batch_size=5,
        learning_rate="constant",
        eta0=0.1,
        alpha=0.01,
        fit_intercept=False,
        recipe=precision,
        max_iter=1,
        tol=None,
    )
    state = begin(problem, options)
    state.weights.x.copy_(torch.randn(1, X.shape[1], generator=torch.Generator().manual_seed(1)) / 5)
    with monkeypatch.context() as patch:
        spy_on_rows(patch, seen)
        spy_on_steps(patch, seen)
        solve(problem, options, comm=OtherRanksHoldZeros(seen=seen), state=state)
    seen.x.append(state.weights.x.clone())
    return seen


def spy_on_rows(patch, seen: Seen) -> None:
    margins, gram, combine = DenseRows.margins, DenseRows.gram, DenseRows.combine

    def spy_margins(self, x):
        seen.Y.append(self.Y.clone())
        return margins(self, x)

    def spy_gram(self, cuts, precision, out):
        gram(self, cuts, precision, out)
        seen.triangle.append(out.clone())

    def spy_combine(self, p, precision):
        seen.p.append(p.clone())
        seen.step.append(combine(self, p, precision).clone())
        return seen.step[-1].clone()

    patch.setattr(DenseRows, "margins", spy_margins)
    patch.setattr(DenseRows, "gram", spy_gram)
    patch.setattr(DenseRows, "combine", spy_combine)
    patch.setattr(DenseRows, "add_combination", SampledRows.add_combination)  # by way of combine


def spy_on_steps(patch, seen: Seen) -> None:
    recur, residuals, wire_sum = ca_sgd.reference_recurrence, reference.residuals, ca_sgd.Wire.sum

    def spy_sum(self, margins, triangle, iteration):
        seen.margins.append(margins.clone())
        return wire_sum(self, margins, triangle, iteration)

    def spy_recurrence(block, *rest):
        seen.block_margins.append(block.margins.clone())
        seen.block_triangle.append(block.triangle.clone())
        return recur(block, *rest)

    def spy_residuals(link, z, y, w, residual, n_models=1):
        seen.z.append(z.clone())
        r, loss = residuals(link, z, y, w, residual, n_models)
        seen.r.append(r.clone())
        return r, loss

    patch.setattr(ca_sgd.Wire, "sum", spy_sum)
    patch.setattr(ca_sgd, "reference_recurrence", spy_recurrence)
    patch.setattr(reference, "residuals", spy_residuals)
    patch.setattr(sgd, "residuals", spy_residuals)


def fits(values: torch.Tensor, name: str) -> bool:
    return torch.equal(FORMATS[name].round(values), values)


def same(a: list, b: list) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def gram_of(Y: torch.Tensor) -> torch.Tensor:
    """The strictly lower block triangle for batches of five, in float32."""
    out = torch.empty(triangle_size(np.arange(0, len(Y) + 1, 5)))
    DenseRows(Y).gram(np.arange(0, len(Y) + 1, 5), Precision(), out)
    return out


CA_KNOBS = [
    # knob, the first quantity it changes, formats it may be lowered to, knobs that must be low before
    ("data", "Y", ("bf16", "fp16"), {}),
    ("margin", "margins", ("bf16", "fp16", "tf32", "fp8-e5m2"), {}),
    ("gram_operand", "triangle", ("bf16", "fp16", "tf32"), {}),
    ("gram_accumulate", "triangle", ("bf16", "fp16", "tf32"), {"gram_operand": "bf16"}),
    ("gram_wire", "wire", ("bf16", "fp16"), {"margin": "bf16"}),
    ("recurrence", "z", ("bf16", "fp16", "tf32"), {}),
    ("residual", "r", ("bf16", "fp16", "tf32"), {}),
    ("update", "step", ("bf16", "fp16", "tf32"), {}),
    ("weights", "x", ("bf16", "fp16", "tf32"), {}),
]
EACH_CA = [(knob, first, low, before) for knob, first, lows, before in CA_KNOBS for low in lows]


@pytest.mark.parametrize(("knob", "first", "low", "before"), EACH_CA)
def test_a_knob_rounds_its_quantity_and_nothing_before_it(monkeypatch, knob, first, low, before):
    usual = look(monkeypatch, Precision(**before))
    lowered = look(monkeypatch, Precision(**before, **{knob: low}))
    for quantity in QUANTITIES[: QUANTITIES.index(first)]:
        n = (
            1 if (quantity, first) == ("z", "r") else None
        )  # the margins of a batch follow the residuals of those before
        assert same(getattr(lowered, quantity)[:n], getattr(usual, quantity)[:n]), f"{knob} changes {quantity}"
    assert not same(getattr(lowered, first), getattr(usual, first)), f"{knob} does not change {first}"

    if knob == "gram_operand":  # the product of rounded operands, otherwise as usual
        assert torch.equal(lowered.triangle[0], gram_of(FORMATS[low].round(lowered.Y[0])))
        assert not fits(lowered.triangle[0], low)
    elif knob == "gram_wire":
        assert lowered.wire[0].dtype == FORMATS[low].storage
        assert torch.equal(lowered.block_triangle[0], FORMATS[low].round(lowered.triangle[0]))
        assert same(lowered.block_margins, [FORMATS[low].round(lowered.margins[0])])
    elif knob == "recurrence":  # the corrected margins, and the coefficients of x
        assert all(fits(z, low) for z in lowered.z)
        assert fits(lowered.p[0][0], low)
        assert not fits(usual.p[0][0], low)
    elif knob == "update":  # the product of rounded operands
        product = FORMATS[low].round(lowered.p[0]) @ FORMATS[low].round(lowered.Y[0])
        assert torch.equal(lowered.step[0], product)
        assert not fits(lowered.step[0], low)
    else:
        assert all(fits(value, low) for value in getattr(lowered, first))
    assert not all(fits(value, low) for value in getattr(usual, first))


def test_margins_share_the_gram_matrix_s_message(monkeypatch):
    """One AllReduce carries both, so a format for the wire is a format for both."""
    seen = look(monkeypatch, Precision(gram_wire="bf16"))
    assert len(seen.wire) == 1
    assert len(seen.wire[0]) == seen.margins[0].numel() + seen.triangle[0].numel()
    assert torch.equal(seen.block_margins[0], FORMATS["bf16"].round(seen.margins[0]))
    assert not fits(seen.margins[0], "bf16")


SGD_KNOBS = [("data", "Y"), ("margin", "wire"), ("residual", "r"), ("update", "step"), ("weights", "x")]


@pytest.mark.parametrize(("knob", "first"), SGD_KNOBS)
@pytest.mark.parametrize("low", ["bf16", "fp16"])
def test_the_knobs_of_sgd(monkeypatch, knob, first, low):
    """In the first iteration: later ones begin from other weights."""
    usual, lowered = (look(monkeypatch, p, "sgd") for p in (Precision(), Precision(**{knob: low})))
    for quantity in QUANTITIES[: QUANTITIES.index(first)]:
        assert same(getattr(lowered, quantity)[:1], getattr(usual, quantity)[:1]), f"{knob} changes {quantity}"
    assert not same(getattr(lowered, first)[:1], getattr(usual, first)[:1])
    if knob == "update":
        product = FORMATS[low].round(lowered.p[0]) @ FORMATS[low].round(lowered.Y[0])
        assert torch.equal(lowered.step[0], product)
    else:
        assert all(fits(value, low) for value in getattr(lowered, first))
    assert not all(fits(value, low) for value in getattr(usual, first))


@pytest.mark.parametrize("knobs", [{"gram_operand": "bf16"}, {"gram_wire": "bf16"}, {"recurrence": "bf16"}], ids=str)
def test_knobs_that_sgd_does_not_have_change_nothing_there(monkeypatch, knobs):
    usual, lowered = (look(monkeypatch, p, "sgd") for p in (Precision(), Precision(**knobs)))
    assert all(same(getattr(lowered, quantity), getattr(usual, quantity)) for quantity in QUANTITIES)


def test_weights_are_rounded_and_their_momentum_and_average_are_not():
    data = arrays("gaussian")
    for solver in ("sgd", "ca_sgd"):
        problem = Problem(stored(data["X"], "dense", torch.float32), FAMILIES["gaussian"], data["y"])
        steps = {"learning_rate": "constant", "eta0": 0.01, "momentum": 0.5, "average": True, "max_iter": 1}
        options = FitOptions(solver=solver, s=16, recipe=Precision(weights="bf16"), **steps)
        w = solve(problem, options).state.weights
        assert fits(w.x, "bf16")
        assert not fits(w.momentum, "bf16")
        assert not fits(w.average, "bf16")


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(
    "name", ["fp32", "C", "D", Precision(recurrence="bf16", residual="bf16"), Precision(weights="bf16")]
)
def test_every_recipe_fits(layout, name):
    """Lower precision costs little: within half a percent of fp32's loss."""
    data = arrays("bernoulli")
    losses = []
    for precision in (recipe("fp32"), recipe(name)):
        columns = stored(data["X"], layout, precision.format("data").storage)
        problem = Problem(columns, FAMILIES["bernoulli"], data["y"])
        steps = {"learning_rate": "constant", "eta0": 0.1, "batch_size": 8, "max_iter": 10}
        options = FitOptions(solver="ca_sgd", s=8, recipe=precision, **steps)
        losses.append(solve(problem, options).history[-1]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)


def test_a_double_accumulator_of_single_operands():
    """fp64 for one knob: the rest stays float32 in value, though the arithmetic is carried in float64."""
    data = arrays("gaussian")
    taken = stored(data["X"], "dense", torch.float32).take(np.arange(20), torch.float64)
    p = Precision(gram_accumulate="fp64")
    out = torch.empty(triangle_size(np.arange(0, 21, 5)), dtype=p.carrier)
    taken.gram(np.arange(0, 21, 5), p, out)
    X = data["X"][:20].float().double()
    assert torch.equal(out[:25].view(5, 5), X[5:10] @ X[:5].T)
    assert not fits(out, "fp32")
