"""Problems here are tiny: a second thread of torch would only wait for the first."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)
