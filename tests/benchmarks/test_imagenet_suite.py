"""The suite `imagenet`: hours of an epoch follow from the seconds of a step, and what is kept is not measured again."""

import json
from dataclasses import replace
from statistics import median

import pytest

from benchmarks.papers.nuqsgd import imagenet
from benchmarks.papers.nuqsgd.imagenet import N_IMAGES, ImageNetOptions, imagenet_rows
from laconic.bench.suite import row_fields
from laconic.errors import InvalidOption
from laconic.exchange import Communicator

TINY = ImageNetOptions(
    models=("resnet-18",), codecs=("fp32", "nuqsgd-4", "nuqsgd-4-rans"), workers=3, ranks=2, batch_size=2,
    image_size=32, steps=2, coded_steps=1,
)  # fmt: skip
N, N_PLAIN = 11_689_512, 10_600
"""Parameters of ResNet-18, and those that stay in float32."""
LEAST = {"fp32": 4 * N, "nuqsgd-4": N // 2 + 3 * N_PLAIN, "nuqsgd-4-rans": N // 20}


@pytest.fixture
def kept(tmp_path):
    return replace(TINY, kept=tmp_path)


@pytest.mark.parametrize("way", ["simulated", "ranks"])
def test_a_later_run_measures_what_is_missing(way, kept, monkeypatch):
    """That first, and nothing after time is up."""
    asked = replace(kept, ways=(way,))
    assert imagenet_rows(replace(asked, seconds=-1.0)) == {
        "rows": [], "left_out": [f"resnet-18 {way} {name}" for name in ("nothing", *TINY.codecs)]
    }  # fmt: skip
    first = imagenet_rows(replace(asked, codecs=TINY.codecs[:2]))["rows"]
    found = imagenet_rows(asked)
    monkeypatch.setitem(imagenet.MEASURED, way, None)
    assert imagenet_rows(asked) == found
    assert found["rows"][:2] == first
    assert found["left_out"] == []
    k, alone = {"simulated": (3, True), "ranks": (2, False)}[way]
    seconds = {
        name: median(json.loads(asked.file_of("resnet-18", way, name).read_text())["seconds"])
        for name in ("nothing", *TINY.codecs)
    }
    for row in found["rows"]:
        assert row.computing_seconds.median == seconds["nothing"]
        assert row.seconds.median == pytest.approx(seconds[row.contender] + alone * seconds["nothing"])
        steps = 1 if row.contender == "nuqsgd-4-rans" else 2
        assert (row.n, row.workers, row.n_steps, row.label) == (N, k, steps, f"extrapolated from {steps} steps")
        assert row.epoch_hours == pytest.approx(N_IMAGES / (2 * k) * row.seconds.median / 3600)
        assert row.exchange_seconds == row.seconds.median - row.computing_seconds.median
        assert LEAST[row.contender] <= row.bytes_sent < 1.2 * LEAST[row.contender] + 0.1 * N
    assert "label" in json.loads(json.dumps(row_fields(first[0]), allow_nan=False))


def test_ranks_stop_before_a_codec_when_it_is_too_late():
    trials = {"nothing": {"problem": "resnet-18"}}
    assert Communicator.over().size == 1
    assert imagenet.train_on_rank(print, trials=trials, seconds=-1.0) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [({"models": ["resnet-20"]}, "resnet-20"), ({"codecs": ["zip"]}, "zip"), ({"image_size": 8}, "image_size")],
)
def test_wrong_options_are_told(given, said):
    with pytest.raises(InvalidOption, match=said):
        replace(TINY, **given)
