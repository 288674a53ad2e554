"""`CompiledKernel`: what `warmup` and a launch on tensors return, under the names of Triton's compiled kernels.

Input: a kernel, the arguments it was specialised for, and its compiled form where there is one. Output: an object to
read (texts, metadata) and to launch over another grid. Law: what is shown is what runs; figures of a GPU that a CPU
program has not are nominal and say so in their names' documentation; a text that does not exist here is a diagnostic.
"""

from __future__ import annotations

import functools
import hashlib
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from bridge.diagnostics import TranslationError, Where
from frontend_triton_compat.aliases import flat_params
from frontend_triton_compat.ir import Kernel, Param, walk
from frontend_triton_compat.show import show
from frontend_triton_compat.types import dtype

if TYPE_CHECKING:
    from frontend_triton_compat.compiled import Compiled
    from frontend_triton_compat.emit.module import Module
    from frontend_triton_compat.launch import JITFunction

#: Options of a launch that metadata shows, and their defaults in Triton.
OPTIONS: dict[str, Any] = {
    "num_warps": 4,
    "num_ctas": 1,
    "num_stages": 3,
    "enable_fp_fusion": True,
    "launch_cooperative_grid": False,
    "extern_libs": (),
    "maxnreg": None,
    "debug": False,
    "sanitize_overflow": True,
}
_SHORT = {"int1": "i1", "bf16": "bf16"} | {f"{k}{b}": f"{k[0]}{b}" for k in ("int", "uint") for b in (8, 16, 32, 64)}


class _NoSuchText(TranslationError, KeyError):
    """TPB262, and a ``KeyError`` for code that probes."""

    __str__ = Exception.__str__


class Texts(Mapping[str, str]):
    """`CompiledKernel.asm`: name -> text, made when it is asked for.

    ``tile_ir`` is what the kernel says, ``source`` the Pallas module that runs, ``stablehlo`` and ``hlo`` what jax
    makes of that.
    """

    def __init__(self, makers: Mapping[str, Callable[[], str]]):
        self._makers, self._made = makers, {}

    def __getitem__(self, name: str) -> str:
        if name not in self._makers:
            raise _NoSuchText(
                "triton-name",
                f"asm[{name!r}] has no meaning here",
                where=Where.caller(),
                why="a kernel becomes Pallas source text; there is no MLIR of Triton's, no PTX and no binary",
                do=f"read one of: {', '.join(self._makers)}",
            )
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers


@dataclass(frozen=True)
class Source:
    """`CompiledKernel.src`: what was compiled.

    Attributes:
        fn: the kernel.
        signature: parameter -> type, as Triton spells it.
        constants: place of a constexpr parameter, as a path -> its value.
    """

    fn: JITFunction
    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.fn.fn.__name__


class CompiledKernel:
    """One specialisation of a kernel.

    Attributes:
        src: the kernel with its signature and constants.
        asm: texts by name, see `Texts`.
        n_regs: nominal, 32: formulas for a number of programs divide by it. A CPU program has no such figure.
        n_spills: 0.
        n_max_threads: nominal, 1024.
        options: of the launch, such as ``num_warps``, as they were given.
    """

    n_regs, n_spills, n_max_threads = 32, 0, 1024
    module: Any = None
    loaded = False

    def __init__(
        self,
        kernel: JITFunction,
        params: list[Param],
        ir: Kernel,
        options: Mapping[str, Any] | None = None,
        emitted: Module | None = None,
        compiled: Compiled | None = None,
    ):
        self.src = Source(
            kernel,
            {p.name: spelling(p) for p in params},
            {(p.index,): p.value for p in params if p.kind == "constexpr"},
        )
        self._params, self._ir, self._compiled = params, ir, compiled
        self.options = {k: v for k, v in (options or {}).items() if k != "warmup"}
        more: dict[str, Callable[[], str]] = {"tile_ir": lambda: show(ir)}
        if compiled is not None:
            emitted = compiled.module
        if emitted is not None:
            module = emitted
            more["source"] = lambda: module.source
            more["stablehlo"] = lambda: self._lowered(module).as_text()
            more["hlo"] = lambda: self._lowered(module).compile().as_text()
        self.asm = Texts(more)

    @functools.cached_property
    def hash(self) -> str:
        """A digest of the kernel, the specialisation and the options."""
        constants = sorted(map(repr, self.src.constants.items()))
        parts = [self.src.fn.cache_key, repr(self.src.signature), repr(constants)]
        parts.append(repr(sorted(self.options.items(), key=repr)))
        return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.src.name

    @property
    def kernel(self) -> bytes:
        """The text that runs, as bytes; the tile IR where shapes were not known."""
        return self.asm["source" if self.function is not None else "tile_ir"].encode()

    @property
    def function(self) -> Any:
        """The entry of the module that runs."""
        return None if self._compiled is None else self._compiled.entry

    @functools.cached_property
    def metadata(self) -> Any:
        """The options, and figures that host code reads.

        ``shared`` is nominal: bytes of the largest tile that is reduced, scanned or multiplied, which is what a GPU
        would share between threads.
        """
        from frontend_triton_compat.runtime import driver

        extern = self.options.get("extern_libs")
        values = {
            **OPTIONS,
            **self.options,
            "extern_libs": tuple(extern.items()) if isinstance(extern, Mapping) else extern or (),
            "name": self.name,
            "hash": self.hash,
            "shared": _shared(self._ir),
            "target": driver.active.get_current_target(),
            "backend_name": "cpu",
            "arch": "cpu",
            "cluster_dims": (1, 1, 1),
            "global_scratch_size": 0,
            "global_scratch_align": 1,
            "profile_scratch_size": 0,
            "tmem_size": 0,
            "warp_size": 1,
        }
        return namedtuple("KernelMetadata", sorted(values))(**values)

    @property
    def packed_metadata(self) -> tuple[Any, ...]:
        """Warps, blocks in a cluster and shared bytes, as one tuple."""
        return (self.metadata.num_warps, self.metadata.num_ctas, self.metadata.shared)

    @property
    def metadata_group(self) -> dict[str, str]:
        """No files are written, so this is empty."""
        return {}

    def _init_handles(self) -> None:
        """Nothing is loaded into a device."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A launch over another grid, with every argument by position; constexprs, which are known, may be left out."""
        kernel, params = self.src.fn, self._params
        free = [p.name for p in params if not _fixed(kernel, p)]

        def launch(*args: Any, stream: Any = None) -> Any:
            if len(args) == len(free) != len(params):
                known = {p.name: p.value for p in params if _fixed(kernel, p)}
                return kernel[grid](**dict(zip(free, args)), **known, **self.options)
            return kernel[grid](*args, **self.options)

        return launch

    def run(self, *grid_then_args: Any) -> Any:
        """Not how a kernel is launched from here: says how."""
        raise _NoSuchText(
            "triton-name",
            "CompiledKernel.run has no meaning here",
            where=Where.caller(),
            why="it takes a GPU's stream and function",
            do="launch over a grid: compiled[grid](*args)",
        )

    def _lowered(self, module: Module) -> Any:
        from bridge import compat
        from frontend_triton_compat.compiled import load_source

        elements = {p.name: p.type for p in flat_params(list(self._ir.params))}
        specs = [jax.ShapeDtypeStruct(o.shape, getattr(jnp, elements[o.param].numpy_name)) for o in module.operands]
        with compat.x64():
            return jax.jit(load_source(module.source, module.entry)).lower(*specs)

    def __repr__(self) -> str:
        signature = ", ".join(f"{name}: {kind}" for name, kind in self.src.signature.items())
        return f"CompiledKernel({self.name}({signature}))"


def _fixed(kernel: JITFunction, param: Param) -> bool:
    return param.index in kernel.constexprs


def spelling(param: Param) -> Any:
    """A parameter's type as Triton spells it: ``*fp32``, ``i32``, ``constexpr``, or a tuple of these."""
    if param.kind == "tuple":
        return tuple(spelling(p) for p in param.items)
    if param.kind == "constexpr":
        return "constexpr"
    name = param.type.name if isinstance(param.type, dtype) else str(param.type)
    return ("*" if param.kind == "pointer" else "") + _SHORT.get(name, name)


def _shared(kernel: Kernel) -> int:
    largest = 0
    for op in walk(kernel.body):
        if op.kind in ("reduce", "scan", "dot", "trans", "call"):
            for value in op.operands:
                element = value.type.element
                width = element.primitive_bitwidth // 8 if isinstance(element, dtype) else 8
                count = functools.reduce(int.__mul__, value.shape, 1)
                largest = max(largest, count * max(width, 1) if value.shape else 0)
    return largest
