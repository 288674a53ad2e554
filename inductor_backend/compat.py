"""The private corners of torch and jax that the Inductor backend needs, in one place.

Input: public-looking arguments. Output: what the private entry returns. Law: no other file of this package touches
`torch._inductor`, `torch._functorch`, `torch._C`, `torch._logging` or `jax._src`; a version bump is read here first.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch
import torch._functorch.config as functorch_config
from torch._logging import getArtifactLogger
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes

from bridge.compat import cpu_device, share_with_jax, share_with_torch, x64

with warnings.catch_warnings():
    # torch warns about its own deprecated modules while Inductor is imported; nothing of that is the user's.
    warnings.simplefilter("ignore")
    import torch._inductor.config as inductor_config
    import torch._inductor.inductor_prims  # (registers the prims that the ops table names)
    from torch._inductor.compile_fx import compile_fx

__all__ = [
    "PROMOTION",
    "compile_executable",
    "elementwise_dtypes",
    "front_half",
    "import_pointer",
    "output_code_log",
    "share_with_jax",
    "share_with_torch",
    "x64",
]

_cpu = torch.device("cpu")


def front_half(gm: torch.fx.GraphModule, inputs: Sequence[Any], inner_compile: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's front half (pre-grad passes, AOTAutograd, decompositions, partitioner) with our inner compiler.

    AOTAutograd's cache does not know `inner_compile`: with a shared cache directory it would return Inductor's C++
    artifact for the same graph, so it is off while we compile. Freezing and the C++ wrapper would bypass us too.
    """
    with (
        functorch_config.patch(enable_autograd_cache=False),
        inductor_config.patch(cpp_wrapper=False, fx_wrapper=False, freezing=False),
    ):
        return compile_fx(gm, inputs, inner_compile=inner_compile)


def import_pointer(pointer: int, nbytes: int, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]):
    """A jax array over raw memory that owns nothing.

    Valid only while the tensor that owns the memory is alive and nobody writes to it: the runtime blocks before it
    returns, so both hold for the length of a call. `pointer` must be 64-byte aligned (jax copies otherwise), and x64
    must be on for 64-bit dtypes.
    """
    storage = torch._C._construct_storage_from_data_pointer(pointer, _cpu, nbytes)
    return share_with_jax(torch.empty(0, dtype=dtype).set_(storage, 0, shape, strides))


def compile_executable(fn: Callable[..., Any], avals: Sequence[jax.ShapeDtypeStruct]) -> Callable[[list[Any]], Any]:
    """Compile `fn` ahead of time for the CPU; the result takes a list of arrays and returns a list of arrays.

    The loaded executable is called directly: no cache key, no dependence on the caller's jax configuration.
    `xla_allow_excess_precision` is off, because a bf16 chain must round after every operator, as eager does.
    """
    with x64(), jax.default_device(cpu_device()):
        lowered = jax.jit(fn, keep_unused=True).lower(*avals)
        compiled = lowered.compile(compiler_options={"xla_allow_excess_precision": False})
    executable = compiled._executable.xla_executable
    execute = executable.execute_sharded

    def call(arrays: list[Any]) -> list[Any]:
        return [shards[0] for shards in execute(arrays).disassemble_into_single_device_arrays()]

    return call


def output_code_log() -> logging.Logger:
    """The logger behind TORCH_LOGS=output_code."""
    return getArtifactLogger("torch._inductor.codecache", "output_code")
