"""Ranks that disagree find out at the first step, all of them, by an error that names rank and field."""

import pytest
import torch
from models import network, sgd, train, wrap

import laconic
from laconic import NUQSGD, Policy, QSGDInf


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
    model = wrap(group, **options)
    if field.startswith("loaded"):
        train(model, sgd(model), range(1), rank)
        name = field.removeprefix("loaded ")
        laconic.load_state_dict(model, {**laconic.state_dict(model), name: torch.tensor(7 + odd)})
    train(model, sgd(model), range(1), rank)


MESSAGES = {
    "bits": "quantizer is NUQSGD(bits=4, bucket_size=256, p=0.5) on rank 0 and "
    "NUQSGD(bits=8, bucket_size=256, p=0.5) on rank 1",
    "scheme": "quantizer is NUQSGD(bits=4, bucket_size=8192, p=0.5) on rank 0 and QSGDInf(",
    "exchange": "exchange is ScatterReduce(second=None) on rank 0 and AllGather() on rank 1",
    "seed": "seed is 0 on rank 0 and 1 on rank 1",
    "loaded step": "step is 7 on rank 0 and 8 on rank 1",
    "loaded seed": "seed is 7 on rank 0 and 8 on rank 1",
    "rule": "what group 0 holds is ['compressed', '2.weight'] on rank 0 and ['compressed', '4.bias', '4.weight', ",
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


def agree(group):
    model = wrap(group, "nuqsgd", net=network(width=50))
    train(model, sgd(model), range(2), torch.distributed.get_rank(group))
    return True


def test_ranks_that_agree_go_on(pool):
    assert all(pool.run(agree, 4))
