"""The pool of ranks that all distributed tests share."""

import pytest
from pool import RankPool


@pytest.fixture(scope="session")
def pool():
    ranks = RankPool()
    yield ranks
    ranks.close()
