"""Names of the genuine package that have no meaning here: importable, and clear about it when they are used.

Input: a module's name and one of its names. Output: a stand-in class. Law: importing one is harmless, ``isinstance``
with one is False, and any use is a diagnostic with the reason; a name that the genuine package does not have either is
an ``ImportError``, so that code which probes for a version takes the same branch as there.
Source of the names: the public modules of Triton 3.7.
"""

from __future__ import annotations

from typing import Any, NoReturn

from bridge.diagnostics import TranslationError, Where

# prefix of a module -> (why its names have no meaning, what to do), the longest prefix wins
_REASONS: dict[str, tuple[str, str]] = {
    "triton": (
        "kernels become Pallas programs; Triton's own compiler and runtime are not part of that",
        "launch the kernel, or ask about it: kernel.source(...), kernel.check(..., target='tpu:v5e')",
    ),
    "triton.compiler": (
        "there is no MLIR or PTX here: a kernel becomes Pallas source text",
        "read the text with kernel.source(..., target='tpu:v5e'), compile it with kernel.check(...)",
    ),
    "triton.backends": (
        "the targets are those of Pallas, and not plug-ins of Triton",
        "pallas_core.targets() lists them",
    ),
    "triton._C": ("it is the compiled part of the genuine package", "use the Python-level names of triton"),
    "triton.profiler": ("it works on a GPU's counters", "profile with jax.profiler or torch.profiler"),
    "triton.experimental": (
        "Gluon describes a GPU's threads and layouts, which have no meaning on a CPU or TPU",
        "write the kernel with triton.language",
    ),
    "triton.testing": (
        "it is a figure of a GPU, which is not here",
        "time with triton.testing.do_bench; for a TPU's static figures use kernel.check(..., target='tpu:v5e')",
    ),
    "triton.tools": (
        "it works on the genuine compiler's output",
        "read the Pallas source with kernel.source(..., target='tpu:v5e')",
    ),
    "triton.runtime.cache": ("compiled kernels are kept by jax", "see jax's compilation cache"),
    "triton.runtime.interpreter": ("there is no separate interpreter", "launch the kernel on CPU tensors"),
}

#: module -> the names of it that have no meaning here
NAMES: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "triton": "FutureKernel max_shared_mem",
        "triton.runtime": "RedisRemoteCacheBackend RemoteCacheBackend InterpretedFunction "
        "GridExecutor TensorHandle interpreter_builder specialize_impl native_specialize_impl "
        "create_function_from_signature mangle_type DependenciesFinder get_cache_manager "
        "get_dump_manager get_override_manager default_cache_dir CacheManager FileCacheManager get_cache_key _base32 "
        "_base64 compile_module_from_src DriverBase DriverConfig FutureKernel",
        "triton.compiler": "IRSource get_cache_key make_backend "
        "max_shared_mem ast_to_ttir CodeGenerator code_generator make_launcher AsmDict triton_key",
        "triton.backends": "Backend BaseBackend Language DriverBase GPUDriver Benchmarker CUDABackend CUDAOptions "
        "CudaDriver CudaUtils HIPBackend HIPOptions HIPDriver",
        "triton.tools": "extract MXFP4Tensor MXScaleTensor create_ragged_descriptor load_ragged store_ragged "
        "atomic_add_ragged to_ragged_indices",
        "triton.profiler": "metadata mode hook data context specs parse print_tree get_min_time_flops "
        "get_min_time_bytes apply_diff_profile read format_frames filter_frames show_metrics record",
        "triton.experimental": "gluon jit language ir",
        "triton._C": "libtriton ir passes nvidia amd llvm interpreter gluon_ir proton getenv getenv_bool "
        "get_cache_invalidating_env_vars",
        "triton.language": "semantic_builder base_type base_value tuple_type constexpr_type "
        "TritonSemantic range_type _aggregate slice_type core_ir target_info",
    }.items()
}


class NameHasNoMeaning(TranslationError, AttributeError):
    """TPB262. Also an ``AttributeError``, so that ``hasattr`` answers instead of raising."""


def no_meaning(name: str) -> NameHasNoMeaning:
    """The diagnostic for a use of `name`, given with its module."""
    prefix = name
    while prefix not in _REASONS:
        prefix = prefix.rpartition(".")[0]
    why, do = _REASONS[prefix]
    return NameHasNoMeaning("triton-name", f"{name} has no meaning here", where=Where.caller(), why=why, do=do)


class _Refusing(type):
    """Metaclass of the stand-ins: calling, indexing or reading one is a diagnostic."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise no_meaning(cls.__triton_name__)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise no_meaning(f"{cls.__triton_name__}.{name}")

    def __getitem__(cls, key: Any) -> NoReturn:
        raise no_meaning(cls.__triton_name__)

    def __repr__(cls) -> str:
        return f"<{cls.__triton_name__}: no meaning here>"


class Absent(metaclass=_Refusing):
    """Base of the stand-ins; a stand-in is a class, so that it can be inherited from and tested with ``isinstance``."""

    __triton_name__ = "triton"


def names_in(module: str) -> frozenset[str]:
    """The names of a genuine module that have no meaning here."""
    family = module
    while family not in NAMES and "." in family:
        family = family.rpartition(".")[0]
    return NAMES.get(family, frozenset())


def lookup_in(module: str, name: str) -> type[Absent]:
    """The stand-in for a name of a genuine module.

    Raises:
        AttributeError: the genuine module has no such name either.
    """
    if name in names_in(module):
        return _Refusing(name, (Absent,), {"__triton_name__": f"{module}.{name}", "__module__": __name__})
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
