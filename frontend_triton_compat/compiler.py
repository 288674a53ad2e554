"""`triton.compiler`: a kernel read and checked for types that are given as text, without arguments.

Input: an `ASTSource`: a kernel, the types of its parameters, the values of its constexprs. Output: a `CompiledKernel`.
Law: without shapes there is no Pallas module, so the handle has the tile IR only; what works on Triton's own
intermediate forms is a diagnostic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.diagnostics import Diagnostic, Where, error, shortened
from frontend_triton_compat.absent import lookup_in, no_meaning
from frontend_triton_compat.handle import CompiledKernel
from frontend_triton_compat.hooks import LazyDict
from frontend_triton_compat.ir import Param
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.parse import parse
from frontend_triton_compat.reflection import Reflection
from frontend_triton_compat.runtime import (
    CompilationError,
    CompileTimeAssertionFailure,
    GPUTarget,
    OutOfResources,
    UnsupportedLanguageConstruct,
    triton_key,
)
from frontend_triton_compat.types import dtype


class ASTSource:
    """A kernel with types for its parameters.

    Attributes:
        fn: the kernel.
        signature: parameter -> type as Triton spells it: ``*fp32``, ``i32``, ``constexpr``, or a tuple of these.
        constants: place of a parameter, as a path -> its value.
    """

    def __init__(
        self,
        fn: Any,
        signature: Mapping[Any, Any],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Any = None,
        constants: Mapping[Any, Any] | None = None,
    ):
        while not isinstance(fn, Reflection) and hasattr(fn, "fn"):
            fn = fn.fn
        if not isinstance(fn, Reflection):
            raise error(
                "bad-argument",
                f"ASTSource was given a {type(fn).__name__}",
                where=Where.caller(),
                why="it takes a kernel",
                do="decorate the function with @triton.jit",
            )
        names = [p.name for p in fn.params]

        def name_of(key: Any) -> str:
            key = key[0] if isinstance(key, tuple) else key
            return names[key] if isinstance(key, int) else key

        self.fn, self.attrs = fn, attrs or {}
        self.signature = {name_of(k): v for k, v in signature.items()}
        given = {name_of(k): v for k, v in {**(constants or {}), **(constexprs or {})}.items()}
        self.constants = {(names.index(k),): v for k, v in given.items()}
        self.name = fn.fn.__name__

    def params(self) -> list[Param]:
        """The parameters, numbers known at run time only.

        Raises:
            TranslationError: a parameter has neither a type nor a value.
        """
        out = []
        for param in self.fn.params:
            kind = self.signature.get(param.name)
            if (param.num,) in self.constants or kind in (None, "constexpr"):
                if (param.num,) not in self.constants and not param.has_default:
                    raise error(
                        "launch-arguments",
                        f"parameter {param.name!r} has neither a type nor a value",
                        where=self.fn.where,
                        why="a kernel is compiled for the types of its parameters and the values of constexprs.",
                        do=f"give it a type, signature={{{param.name!r}: '*fp32'}}, or a value in constexprs",
                    )
                value = self.constants.get((param.num,), param.default)
                out.append(Param(param.name, param.num, "constexpr", value=unwrap(value)))
            else:
                out.append(_param(param.name, param.num, kind))
        return out


def _param(name: str, index: int, kind: Any) -> Param:
    if isinstance(kind, tuple | list):
        return Param(name, index, "tuple", items=tuple(_param(f"{name}_{i}", i, k) for i, k in enumerate(kind)))
    try:
        plain = str(kind).lstrip("*").removeprefix("k")
        element = dtype(_LONG.get(plain, plain))
        return Param(name, index, "pointer" if str(kind).startswith("*") else "float", element)
    except (ValueError, KeyError, AttributeError):
        raise error(
            "launch-dtype",
            f"parameter {name!r} has the type {kind!r}, which is none",
            where=Where.caller(),
            do="spell it as Triton does: *fp32, *bf16, i32, i64, fp32, constexpr",
        ) from None


_LONG = {f"{k}{b}": f"{n}{b}" for k, n in (("i", "int"), ("u", "uint")) for b in (8, 16, 32, 64)}
_LONG |= {"i1": "int1", "u1": "int1"}


def compile(src: Any, target: Any = None, options: Mapping[str, Any] | None = None, **ignored: Any) -> CompiledKernel:
    """Read and check a kernel for given types.

    Args:
        src: an `ASTSource`.
        target: accepted; there is no binary for any.
        options: launch options, kept in the metadata.
        **ignored: accepted.

    Returns:
        A handle whose ``asm`` has the ``tile_ir``.

    Raises:
        TranslationError: it is something else than an `ASTSource`, or the kernel has no translation.
    """
    if not isinstance(src, ASTSource):
        raise no_meaning("triton.compile")
    __tracebackhide__ = True
    try:
        params = src.params()
        ir = parse(src.fn.__translated__, {p.name: p for p in params}, (1, 1, 1))
        return CompiledKernel(src.fn, params, ir, options or {})  # type: ignore[arg-type]
    except Diagnostic as problem:
        raise shortened(problem) from problem.__cause__


def __getattr__(name: str) -> Any:
    return lookup_in("triton.compiler", name)


__all__ = [
    "ASTSource",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "GPUTarget",
    "LazyDict",
    "OutOfResources",
    "UnsupportedLanguageConstruct",
    "compile",
    "triton_key",
]
