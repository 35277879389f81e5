"""The pools of ranks that all distributed tests share."""

import pytest
import torch
from pool import RankPool


@pytest.fixture(scope="session")
def pool():
    ranks = RankPool()
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def nccl_pool():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    ranks = RankPool("cuda")
    yield ranks
    ranks.close()
