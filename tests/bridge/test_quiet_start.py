"""jax starts without libtpu's noise, seconds or traces in the process where no TPU is attached."""

import subprocess
import sys
import textwrap
from importlib.util import find_spec

import pytest

needs_libtpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed")


def run(code: str, **env: str) -> subprocess.CompletedProcess:
    import os

    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TPU_"))}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env={**clean, **env}
    )


START = """
    import os, time
    import jax
    from bridge import compat
    if compat.tpu_is_present():
        print("TPU"); raise SystemExit
    env, config = dict(os.environ), dict(jax.config.values)
    begin = time.perf_counter()
    compat.cpu_device()
    print(f"took {time.perf_counter() - begin:.3f}")
    assert dict(os.environ) == env
    assert dict(jax.config.values) == config
    assert "libtpu" not in open("/proc/self/maps").read()
    assert jax.default_backend() == "cpu"
    try:
        jax.devices("tpu")
    except RuntimeError as problem:
        assert "no TPU is attached" in str(problem), problem
    else:
        raise AssertionError("a TPU appeared")
    from jax._src import xla_bridge
    assert "no_tpu" not in repr(xla_bridge._backend_factories["tpu"].factory)
"""


@needs_libtpu
def test_start_is_quiet_fast_and_leaves_no_trace():
    done = run(START)
    if done.stdout.startswith("TPU"):
        pytest.skip("a TPU is attached")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert float(done.stdout.split()[1]) < 10.0  # libtpu asks a metadata server for minutes where nothing stops it


@needs_libtpu
def test_to_jax_is_quiet():
    done = run("import torch, bridge; print(float(bridge.to_jax(torch.ones(16)).sum()))")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "16.0", "")


def test_a_platform_that_the_user_names_is_left_to_jax():
    done = run("from bridge import compat; print(compat.cpu_device())", JAX_PLATFORMS="cpu")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "cpu:0", "")
