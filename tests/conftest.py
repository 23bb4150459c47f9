"""Fixtures of the whole suite."""

import os

import pytest
import torch


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes too")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(autouse=True)
def _cuda_is_there(request):
    """Skips a test marked `cuda` without a GPU, or fails it where one is promised."""
    if "cuda" in request.keywords and not torch.cuda.is_available():
        if os.environ.get("FAIL_WITHOUT_CUDA") == "1":
            pytest.fail("FAIL_WITHOUT_CUDA=1 and there is no CUDA device")
        pytest.skip("no CUDA device")


@pytest.fixture(autouse=True)
def _global_generator_untouched():
    """No test in this suite may find that a call of ours moved the global generator."""
    before = torch.get_rng_state()
    yield
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    assert torch.equal(before, after), "the test moved the global generator: draw from a generator of its own"


@pytest.fixture
def threads():
    """Sets the number of threads, and back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
