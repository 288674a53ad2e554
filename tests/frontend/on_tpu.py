"""A kernel's TPU form on Pallas' TPU interpreter: races looked for, memory that nothing wrote reads as NaN."""

import jax
import jax.numpy as jnp
import torch
from jax.experimental.pallas import tpu as pltpu

import bridge
from frontend_triton_compat.compiled import load_source
from frontend_triton_compat.offline import translate
from pallas_core import compat


def results(kernel, args, meta, grid, target="tpu:v5e"):
    """What the TPU form gives: parameter -> tensor of the result's shape."""
    module = translate(kernel, args, meta, grid, target)
    entry = load_source(module.source, module.entry)
    names = dict(zip(kernel.arg_names, args))
    operands = []
    for operand in module.operands:
        value = names[operand.param]
        if operand.scalar:
            operands.append(jnp.array([value], jnp.float32))
        else:
            strides = torch.empty(operand.shape, device="meta").stride()
            flat = torch.as_strided(value, operand.shape, strides, value.storage_offset() + operand.start)
            operands.append(bridge.to_jax(flat.clone()))
    params = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan")
    got = jax.block_until_ready(jax.jit(lambda *a: entry(*a, interpret=params))(*operands))
    assert not compat.races_found()
    return {r.param: bridge.to_torch(value) for r, value in zip(module.results, got)}


def against_cpu(kernel, args, meta, grid, target="tpu:v5e", **tolerance):
    """Hold the TPU form against the CPU form, which is tested against torch and the interpreter."""
    got = results(kernel, args, meta, grid, target)
    kernel[grid](*args, **meta)
    names = dict(zip(kernel.arg_names, args))
    for param, value in got.items():
        want = names[param].as_strided(value.shape, torch.empty(value.shape, device="meta").stride())
        torch.testing.assert_close(
            value, want, **(tolerance or {"rtol": 1e-4, "atol": 1e-4}), msg=lambda m: f"{param}: {m}"
        )
    return got
