"""Compiling for a TPU that is not here: the real compiler's verdict, in words and with the user's line."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.experimental import pallas as pl

import pallas_core as pc
from bridge.diagnostics import Diagnostic
from pallas_core.offline import client
from pallas_core.reasons import explain_failure
from pallas_core.targets.tpu import CHIPS

tpu_offline = pytest.mark.tpu_offline
X = torch.zeros(256, 256)


def whole(kernel, out=X, **kwargs):
    return pc.pallas_call(kernel, out_shape=pc.like(out), **kwargs)


def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


def sorts(x_ref, o_ref):
    o_ref[...] = jnp.sort(x_ref[...])


def unaligned(x_ref, o_ref):
    i = pc.program_id(0)
    o_ref[...] = jnp.zeros_like(o_ref)
    o_ref[:8, :128] = x_ref[pc.ds(0, 8), pc.ds(i * 3, 128)]


def to_int64(x_ref, o_ref):
    o_ref[...] = x_ref[...].astype(jnp.int64).astype(jnp.float32)


def to_float16(x_ref, o_ref):
    o_ref[...] = x_ref[...].astype(jnp.float16).astype(jnp.float32)


def big_temporaries(x_ref, o_ref, s_ref):
    s_ref[...] = jnp.broadcast_to(x_ref[...], s_ref.shape)
    o_ref[...] = s_ref[0] + x_ref[...]


@tpu_offline
@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_compiles(chip):
    compiled = pc.compile_for(whole(add_one), (X,), f"tpu:{chip}")
    assert "tpu_custom_call" in compiled.text
    assert compiled.memory["argument_size_in_bytes"] == compiled.memory["output_size_in_bytes"] == 256 * 256 * 4


@tpu_offline
def test_any_jax_function_specs_and_closures():
    factor = 3.0

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * factor

    def program(x, y):
        z = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((256, 256), jnp.float32))(x)
        return jnp.tanh(z) @ y, whole(add_one)(z)

    specs = [pc.spec((256, 256), torch.float32)] * 2
    compiled = pc.compile_for(jax.jit(program), specs, "tpu:v6e")
    assert compiled.text.count('custom_call_target="tpu_custom_call"') == 2
    assert pc.compile_for(program, [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * 2, "tpu:v6e").memory


@tpu_offline
def test_a_function_traced_for_the_cpu_before_compiles_for_the_tpu():
    f = whole(add_one)
    jitted = jax.jit(lambda x: f(x) * 2)
    jitted(jnp.zeros((256, 256)))
    assert "tpu_custom_call" in pc.compile_for(jitted, (X,), "tpu:v5e").text
    assert float(jitted(jnp.zeros((256, 256)))[0, 0]) == 2.0


@tpu_offline
@pytest.mark.parametrize("x64", [False, True])
def test_the_callers_x64_mode_changes_nothing(x64):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pc.program_id(0)

    rows = pc.BlockSpec((8, 256), lambda i: (i, 0))
    with jax.enable_x64(x64):
        f = whole(kernel, grid=(32,), in_specs=[rows], out_specs=rows)
        assert pc.compile_for(f, (X,), "tpu:v5e").memory


@tpu_offline
@pytest.mark.parametrize(
    "kernel, kwargs, slug, marked",
    [
        (sorts, {}, "tpu-unsupported-op", "jnp.sort"),
        (
            unaligned,
            {"grid": (2,), "out_specs": pc.BlockSpec((128, 256), lambda i: (i, 0))},
            "tpu-unaligned-slice",
            "x_ref[",
        ),
        (to_int64, {}, "tpu-dtype", "x_ref[...].astype(jnp.int64)"),
        (to_float16, {}, "tpu-dtype", "x_ref[...].astype(jnp.float16)"),
    ],
)
def test_refusals_name_the_users_line(kernel, kwargs, slug, marked):
    with pytest.raises(Diagnostic) as caught:
        pc.compile_for(whole(kernel, **kwargs), (X,), "tpu:v5e")
    found = caught.value
    assert found.slug == slug, str(found)
    assert found.where.file == __file__ and found.where.text()[found.where.col - 1 :].startswith(marked)
    assert found.why and found.do


@tpu_offline
def test_the_compilers_own_vmem_verdict():
    scratch = [pc.VMEM((50, 256, 256), torch.float32)]  # 12.5 MiB: the blocks fit, the temporaries do not
    with pytest.raises(Diagnostic) as caught:
        pc.compile_for(whole(big_temporaries, scratch_shapes=[pc.VMEM((70, 256, 256), torch.float32)]), (X,), "tpu:v5e")
    assert caught.value.slug == "vmem-budget"
    assert pc.compile_for(whole(big_temporaries, scratch_shapes=scratch), (X,), "tpu:v6e").memory


@tpu_offline
@pytest.mark.parametrize("chip", CHIPS)
def test_the_scoped_vmem_limit_of_the_table_is_the_compilers(chip):
    mib = CHIPS[chip].scoped_vmem_bytes >> 20

    def compiles(size):
        def kernel(x_ref, o_ref, s_ref):  # scratch that is read before it is written: it can't be optimised away
            i = pc.program_id(0)
            o_ref[...] = s_ref[i + 1] + x_ref[...]
            s_ref[i] = x_ref[...]

        one, rows = pc.spec((32, 256), torch.float32), pc.BlockSpec((8, 256), lambda i: (i, 0))
        scratch = [pc.VMEM((size * 128, 8, 256), torch.float32)]
        f = pc.pallas_call(kernel, out_shape=one, grid=(4,), in_specs=[rows], out_specs=rows, scratch_shapes=scratch)
        program = pc.offline.trace_for(f, (one,), f"tpu:{chip}")
        lowered = pc.lowering.lower(program)  # past our own budget: the compiler is asked
        return client.worker(False).compile(lowered.module, CHIPS[chip], 60)[0]["ok"]

    assert compiles(mib - 1) and not compiles(mib + 1)


@tpu_offline
def test_lower_gives_text_without_a_tpu():
    text = whole(add_one).lower(X, target="tpu:v5e").as_text()
    assert "tpu_custom_call" in text


@tpu_offline
def test_a_dead_worker_is_replaced():
    worker = client.worker(False)
    pc.compile_for(whole(add_one), (X,), "tpu:v5e")
    worker._process.kill()
    worker._process.wait()
    other = torch.zeros(64, 256)
    assert pc.compile_for(whole(add_one, other), (other,), "tpu:v5e").memory


@tpu_offline
def test_a_crash_and_a_timeout_are_diagnostics(monkeypatch):
    lowered = whole(add_one).lower(X, target="tpu:v5e")
    worker = client.Worker(dump=False)
    with pytest.raises(Diagnostic) as caught:
        worker.compile(lowered.module, CHIPS["v5e"], timeout=0.001)
    assert caught.value.slug == "tpu-compiler-timeout"
    monkeypatch.setitem(client._ENVIRONMENT, "TPU_LIBRARY_PATH", "/dev/null")
    monkeypatch.setattr(client, "__file__", __file__)  # a folder without a worker script
    with pytest.raises(Diagnostic) as caught:
        worker.compile(lowered.module, CHIPS["v5e"], timeout=60)
    assert caught.value.slug == "tpu-compiler-crash"
    worker.stop()


def test_without_libtpu_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(client.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(pc.offline, "_answers", {})
    with pytest.raises(Diagnostic) as caught:
        pc.compile_for(whole(add_one), (X,), "tpu:v5e")
    assert caught.value.slug == "missing-dependency" and "torch-pallas[tpu]" in str(caught.value)


@pytest.mark.parametrize(
    "message, slug",
    [
        ("Mosaic failed to compile TPU kernel: something new happened", "tpu-compile-failed"),
        ("Loads are only allowed on VMEM and SMEM references.", "tpu-memory-space"),
        ("RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:\nRan out", "vmem-budget"),
        ("UNIMPLEMENTED: While rewriting computation to not contain X{64|128} element types", "tpu-dtype"),
        ("Unimplemented primitive in Pallas TPU lowering for tc: expm1. Please file an issue", "tpu-unsupported-op"),
    ],
)
def test_messages_become_slugs(message, slug):
    found = explain_failure(message, CHIPS["v5e"], None)
    assert found.slug == slug and found.do and "Please file" not in str(found)


def test_the_process_stays_quiet_and_its_environment_alone():
    # the first two come from jax (the second from tracing any kernel where absl-py is there), the others from torch
    script = (
        "import os, sys; before = dict(os.environ)\n"
        "import torch, pallas_core as pc\n"
        "def k(x, o): o[...] = x[...] + 1\n"
        "x = torch.zeros(8, 128)\n"
        "assert pc.pallas_call(k, out_shape=pc.like(x))(x).sum() == 1024\n"
        "pc.targets()\n"
        "assert 'libtpu' not in open('/proc/self/maps').read()\n"
        "new = {k: v for k, v in os.environ.items() if before.get(k) != v}\n"
        "allowed = {'TPU_SKIP_MDS_QUERY', 'MOSAIC_GPU_CUDA_ROOT', 'TF2_BEHAVIOR', 'KMP_DUPLICATE_LIB_OK'}\n"
        "allowed |= {'KMP_INIT_AT_FORK'}\n"
        "assert set(new) <= allowed, new\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
