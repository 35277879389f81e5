"""The pool of ranks that all distributed tests share."""

import pytest
from pool import RankPool


@pytest.fixture(scope="session")
def pool():
    import warm  # noqa: F401 (here, so that not each of the ranks compiles the kernels)

    ranks = RankPool()
    yield ranks
    ranks.close()
