"""Law 7: everything runs without a process group."""

import torch
from members import QUANTIZERS

from laconic import Codec


def test_no_process_group_is_made_or_needed():
    v = torch.randn(1000)
    for quantizer in QUANTIZERS:
        codec = Codec(quantizer)
        codec.decode(codec.encode(v, memory=codec.new_memory(v)))
    assert not torch.distributed.is_initialized()
