"""`triton.knobs`: settings of the genuine compiler and runtime, readable and without effect on what is computed.

Input: what libraries read and set, and the environment variables that Triton reads. Output: the value that was set, or
that of the variable, or the default of a machine without a GPU. Law: no setting changes what a kernel computes; hooks
are called (`hooks`), and one that would never be called is refused instead of being kept silently.
Source of the names: the public ``triton.knobs`` documentation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from frontend_triton_compat import hooks
from frontend_triton_compat.absent import NameHasNoMeaning, no_meaning
from frontend_triton_compat.hooks import HookChain

_CHAINS = frozenset("launch_enter_hook launch_exit_hook kernel_load_start_hook kernel_load_end_hook".split())
_CALLED = _CHAINS | {"jit_cache_hook", "jit_post_compile_hook"}
#: Hooks of stages that are not here.
_NEVER_CALLED = frozenset("add_stages_inspection_hook listener async_compile".split())
#: Settings that mean something here and that the environment gives.
_VARIABLES = {
    "autotuning.cache": "TRITON_CACHE_AUTOTUNING",
    "autotuning.print": "TRITON_PRINT_AUTOTUNING",
    "runtime.debug": "TRITON_DEBUG",
}


class Knobs:
    """One group of settings.

    Attributes are read and set like plain ones; names that the group does not know raise ``AttributeError``.
    """

    def __init__(self, group: str, **defaults: Any):
        object.__setattr__(self, "_group", group)
        object.__setattr__(self, "_defaults", defaults)
        object.__setattr__(self, "_values", dict(defaults))

    def __getattr__(self, name: str) -> Any:
        if name in _CALLED and name in self._defaults:
            return getattr(hooks.hooks, name)
        try:
            value = self._values[name]
            variable = _VARIABLES.get(f"{self._group}.{name}") if value is None else None
            return value if variable is None else os.environ.get(variable, "0").lower() in ("1", "true", "on", "yes")
        except KeyError:
            raise AttributeError(f"triton.knobs.{self._group} has no setting {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"triton.knobs.{self._group} has no setting {name!r}")
        if name in _NEVER_CALLED and value is not None:
            raise no_meaning(f"triton.knobs.{self._group}.{name}")
        if name in _CHAINS and not isinstance(value, HookChain):
            chain, hook = HookChain(name.endswith(("exit_hook", "end_hook"))), value
            value = chain
            if hook is not None:
                chain.add(hook)
        if name in _CALLED:
            setattr(hooks.hooks, name, value)
            return
        self._values[name] = value

    def copy(self) -> Knobs:
        """A group with the same settings."""
        other = Knobs(self._group, **self._defaults)
        other._values.update(self._values)
        return other

    def reset(self) -> Knobs:
        """Back to the defaults."""
        self._values.clear()
        self._values.update(self._defaults)
        for name in _CALLED & self._defaults.keys():
            setattr(self, name, None)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is set within is taken back at the end."""
        before = dict(self._values)
        called = {name: getattr(self, name) for name in _CALLED & self._defaults.keys()}
        try:
            yield
        finally:
            self._values.clear()
            self._values.update(before)
            for name, hook in called.items():
                setattr(self, name, hook)


build = Knobs("build", cc=None, cudacrt_path=None, cudart_path=None, backend_dirs=frozenset(), impl=None)
redis = Knobs("redis", key_format="triton:{key}:{filename}", host="localhost", port=6379)
cache = Knobs(
    "cache", home_dir=None, dump_dir=None, override_dir=None, dir=None, manager_class=None, remote_manager_class=None
)
compilation = Knobs(
    "compilation",
    override=False,
    dump_ir=False,
    dump_ir_extract_di_local_variables=False,
    store_binary_only=False,
    always_compile=False,
    use_ir_loc=None,
    enable_asan=False,
    disable_line_info=False,
    front_end_debugging=False,
    allow_non_constexpr_globals=False,
    instrumentation_mode="",
    enable_experimental_consan=False,
    listener=None,
)
autotuning = Knobs("autotuning", cache=None, print=None)
runtime = Knobs(
    "runtime",
    interpret=False,
    debug=None,
    sanitize_overflow=True,
    override_arch=None,
    launch_enter_hook=None,
    launch_exit_hook=None,
    kernel_load_start_hook=None,
    kernel_load_end_hook=None,
    jit_cache_hook=None,
    jit_post_compile_hook=None,
    add_stages_inspection_hook=None,
    async_compile=None,
)
language = Knobs("language", fp32_default=None, default_fp_fusion=True)
nvidia = Knobs(
    "nvidia",
    mock_ptx_version=None,
    dump_nvptx=False,
    disable_ptxas_opt=False,
    libcuda_path=None,
    libdevice_path=None,
    use_meta_ws=False,
)
amd = Knobs(
    "amd",
    use_buffer_ops=True,
    use_buffer_atomics=True,
    dump_amdgcn=False,
    libhip_path=None,
    lld_path=None,
    use_block_pingpong=None,
    use_in_thread_transpose=False,
    use_async_copy=None,
    global_prefetch=0,
    local_prefetch=0,
    scalarize_packed_fops=False,
)
proton = Knobs("proton", disable=False, cupti_lib_dir=None, enable_nvtx=True, enable_hw_trace=False)

__all__ = [
    "Knobs",
    "NameHasNoMeaning",
    "amd",
    "autotuning",
    "build",
    "cache",
    "compilation",
    "language",
    "nvidia",
    "proton",
    "redis",
    "runtime",
]
