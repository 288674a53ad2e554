"""What all tests share: options, and skips for what a machine lacks.

``pytest --slow`` also runs the long sweeps. Tests marked ``tpu_offline`` need the package libtpu (no TPU).
"""

import importlib.util
import os
import shutil
import tempfile

import pytest

#: Compiled programs of a test run stay out of the user's cache, and so do those of the processes it starts.
_CACHE = os.environ["TORCH_PALLAS_CACHE_DIR"] = tempfile.mkdtemp(prefix="torch-pallas-tests-")


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the long sweeps too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_slow = pytest.mark.skip(reason="a long sweep; run it with --slow")
    skip_tpu = pytest.mark.skip(reason="the TPU compiler is not installed: pip install 'torch-pallas[tpu]'")
    with_tpu = importlib.util.find_spec("libtpu") is not None
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(skip_slow)
        if item.get_closest_marker("tpu_offline") and not with_tpu:
            item.add_marker(skip_tpu)
