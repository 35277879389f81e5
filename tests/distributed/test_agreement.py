"""Ranks that disagree find out at the first step, all of them, by an error that names rank and field."""

import pytest
import torch
from models import adamw, network, sgd, train, wrap

import laconic
from laconic import NUQSGD, Policy, QSGDInf
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json, raise_on_all_ranks, require_same


class Everything(Policy):
    """The same numbers, and another rule."""

    def compresses(self, parameter):
        return True


def disagree(group, field):
    rank = torch.distributed.get_rank(group)
    odd = rank == 1
    options = {"codec": NUQSGD(bits=4, bucket_size=256)}
    if field == "bits":
        options["codec"] = NUQSGD(bits=8 if odd else 4, bucket_size=256)
    elif field == "scheme":
        options["codec"] = QSGDInf(bits=4) if odd else NUQSGD(bits=4)
    elif field == "exchange":
        options["exchange"] = "all_gather" if odd else "scatter_reduce"
    elif field == "seed":
        options["seed"] = int(odd)
    elif field == "policy":
        options["policy"] = Policy(min_values=100, warmup_steps=3 if odd else 0)
    elif field == "rule":
        options["policy"] = Everything() if odd else Policy()
    elif field == "metric":
        options["metric"] = "tensor" if odd else "none"
    elif field in ("second moment", "switched off"):
        options["make"] = adamw
    model = wrap(group, **options)
    if field == "second moment":
        train(model, model.optimizer, range(1), rank)
        model.optimizer.state[model.module[2].weight]["exp_avg_sq"].mul_(2 if odd else 1)
    elif field == "switched off":
        train(model, model.optimizer, range(1), rank)
        if odd:
            laconic.set_codec(model, None)
    elif field.startswith("loaded"):
        train(model, sgd(model), range(1), rank)
        name = field.removeprefix("loaded ")
        laconic.load_state_dict(model, {**laconic.state_dict(model), name: torch.tensor(7 + odd)})
    train(model, sgd(model), range(1), rank)


MESSAGES = {
    "bits": "quantizer is NUQSGD(bits=4, bucket_size=256, p=0.5) on rank 0 and "
    "NUQSGD(bits=8, bucket_size=256, p=0.5) on rank 1",
    "scheme": "quantizer is NUQSGD(bits=4, bucket_size=512, p=0.5) on rank 0 and QSGDInf(",
    "exchange": "exchange is ScatterReduce(second=None) on rank 0 and AllGather() on rank 1",
    "seed": "seed is 0 on rank 0 and 1 on rank 1",
    "loaded step": "step is 7 on rank 0 and 8 on rank 1",
    "loaded seed": "seed is 7 on rank 0 and 8 on rank 1",
    "rule": "what group 0 holds is ['compressed', '2.weight'] on rank 0 and ['compressed', '4.bias', '4.weight', ",
    "metric": "metric is none on rank 0 and tensor on rank 1",
    "second moment": "the mean squared gradient of 2.weight is ",
    "switched off": "codec switched off is False on rank 0 and True on rank 1",
    "policy": "policy.warmup_steps is 0 on rank 0 and 3 on rank 1",
}


@pytest.mark.parametrize("field", MESSAGES)
def test_every_rank_is_told(pool, field):
    for good, result in pool.outcomes(disagree, 3, field=field):
        assert not good
        kind, message, _ = result
        assert kind == "Disagreement"
        assert MESSAGES[field] in message
        assert "\n" not in message


ERRORS = {
    "option": InvalidOption(Option("seed"), " must be at least 0"),
    "file": FileNotFoundError(2, "No such file or directory", "X.csv"),
    "value": ValueError("no such column"),
    "bug": KeyError("x"),
}
TOLD = {
    "option": "seed must be at least 0",
    "file": "X.csv: No such file or directory",
    "value": "no such column",
    "bug": "KeyError: 'x'",
}


def fail(group, name, wrong):
    """What each rank is told when some ranks fail; afterwards all must still be in step."""
    comm = Communicator.over(group)
    try:
        with raise_on_all_ranks(comm):
            if comm.rank in wrong:
                raise ERRORS[name]
        told = None
    except Exception as error:  # noqa: BLE001 (told to the test)
        told = type(error).__name__, str(error), [str(part) for part in getattr(error, "parts", ())]
    return told, gather_json(comm, comm.rank)


@pytest.mark.parametrize("wrong", [[], [1], [0, 2]], ids=str)
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_one_rank_is_raised_on_all(pool, name, wrong):
    for rank, (told, ranks) in enumerate(pool.run(fail, 3, name=name, wrong=wrong)):
        assert ranks == [0, 1, 2]
        if not wrong:
            assert told is None
        elif rank in wrong:
            assert told[:2] == (type(ERRORS[name]).__name__, str(ERRORS[name]))
        else:
            assert told[:2] == ("Disagreement", f"rank {wrong[0]}: {TOLD[name]}")
            assert ("seed" in told[2]) == (name == "option")  # an option is still one


def compare(group, facts, may_differ):
    comm = Communicator.over(group)
    return require_same(comm, facts[comm.rank], may_differ=may_differ)


SEEDS = [{"seed": 0}, {"seed": 0}, {"seed": 1}]
COMPARED = {
    "same": ([{"seed": 0, "rows": None}] * 3, (), None),
    "other": (SEEDS, (), "seed is 0 on rank 0 and 1 on rank 2"),
    "may differ": (SEEDS, ("seed",), None),
    "missing": ([{}, {"seed": 1}, {}], (), "seed is None on rank 0 and 1 on rank 1"),
    "too many": ([{}, {}, {str(i): i for i in range(9)}], (), "4 is None on rank 0 and 4 on rank 2. Give every rank"),
}


@pytest.mark.parametrize(("facts", "may_differ", "said"), COMPARED.values(), ids=COMPARED)
def test_facts_are_compared(pool, facts, may_differ, said):
    for good, result in pool.outcomes(compare, 3, facts=facts, may_differ=may_differ):
        assert good == (said is None)
        if good:
            assert result == facts
        else:
            assert result[0] == "Disagreement"
            assert said in result[1]


def agree(group):
    model = wrap(group, "nuqsgd", net=network(width=50))
    train(model, sgd(model), range(2), torch.distributed.get_rank(group))
    return True


def test_ranks_that_agree_go_on(pool):
    assert all(pool.run(agree, 4))
