"""What a kernel says of itself, under Triton's names: parameters, source text, a key of what it depends on.

Input: the Python function behind a kernel. Output: attributes that libraries, tests and tools read or set. Law: the
text shown by ``src`` is the text that is translated; whatever changes what a kernel means makes it forget what was
compiled for it.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import inspect
import textwrap
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bridge.diagnostics import Where
from frontend_triton_compat.language.constexpr import constexpr
from frontend_triton_compat.parse.executed import with_text
from frontend_triton_compat.parse.source import place_of, read_function, text_of, was_read
from frontend_triton_compat.types import dtype, pointer_type

#: every kernel there is; those that may have inlined a function forget their forms when its text is replaced
_kernels: weakref.WeakSet[Reflection] = weakref.WeakSet()


class KernelParam:
    """A parameter of a kernel.

    Attributes:
        num, name, default: its place, its name, its default (``inspect.Parameter.empty`` for none).
        annotation: Triton's short spelling of the annotation; "" for none.
        is_constexpr, is_const: what the annotation says.
        do_not_specialize, do_not_specialize_on_alignment: what ``triton.jit`` was told; without effect here.
    """

    def __init__(
        self, num: int, param: inspect.Parameter, do_not_specialize: bool, do_not_specialize_on_alignment: bool
    ):
        self.num, self._param = num, param
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self._param.name

    @property
    def default(self) -> Any:
        """The parameter's default, ``inspect.Parameter.empty`` for none."""
        return self._param.default

    @property
    def has_default(self) -> bool:
        """Whether it has a default."""
        return self._param.default is not inspect.Parameter.empty

    @functools.cached_property
    def annotation(self) -> str:
        """Triton's short spelling of the annotation: ``constexpr``, ``i32``, ``*fp32``; "" for none."""
        given = self._param.annotation
        return "" if given is inspect.Parameter.empty or not given else _spelling(given)

    @property
    def annotation_type(self) -> str:
        """The annotation where it is a type of the language, "" where it is none."""
        return self.annotation if self.annotation.removeprefix("*").removeprefix("k") in _SPELLINGS.values() else ""

    @property
    def is_constexpr(self) -> bool:
        """Whether the parameter is part of the kernel's code."""
        return "constexpr" in self.annotation

    @property
    def is_const(self) -> bool:
        """Whether the annotation promises that the pointer is only read."""
        return not self.is_constexpr and ("const" in self.annotation or self.annotation.startswith("*k"))


_SPELLINGS = {
    **{f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{"bool": "i1", "int1": "i1", "uint1": "u1", "half": "fp16", "bfloat16": "bf16"},
    **{f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)},
    **{name: name for name in ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15", "void", "u1")},
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}


def _spelling(annotation: Any) -> str:
    if isinstance(annotation, pointer_type):
        return "*" + _spelling(annotation.element_ty)
    if isinstance(annotation, dtype):
        text = annotation.name
    elif isinstance(annotation, type):
        text = annotation.__name__
    else:
        text = str(annotation).strip().strip("'\"")
    if text.startswith("const "):
        return "*k" + _spelling(text.removeprefix("const ")).removeprefix("*")
    if text.endswith("*") or text.startswith("*"):
        return "*" + _spelling(text.strip("*"))
    text = text.removeprefix("triton.language.").removeprefix("tl.")
    return _SPELLINGS.get(text.removesuffix("_t"), text)


class Reflection:
    """The attributes; see the module. A subclass gives `fn` and calls `_reflect`.

    Attributes:
        fn: the Python function.
        do_not_specialize, do_not_specialize_on_alignment: as ``triton.jit`` was told; integers are data where they can
            be, so there is nothing to forbid.
        version, debug, noinline, launch_metadata: as ``triton.jit`` was told.
        module: the name of the function's module.
    """

    fn: Any

    def _reflect(self, options: dict[str, Any]) -> None:
        self.module = getattr(self.fn, "__module__", None)
        self.version, self.debug, self.noinline = (options.get(n) for n in ("version", "debug", "noinline"))
        self.launch_metadata: Callable[..., Any] | None = options.get("launch_metadata")
        self.do_not_specialize: Iterable[int | str] = options.get("do_not_specialize") or []
        self.do_not_specialize_on_alignment: Iterable[int | str] = options.get("do_not_specialize_on_alignment") or []
        self._repr: Callable[[Any], str] | None = options.get("repr")
        self._twin: types.FunctionType | None = None  # `fn` with another text
        self._key: str | None = None
        self._outside: dict[tuple[str, int], tuple[Any, dict[str, Any]]] = {}
        _kernels.add(self)

    def forget(self) -> None:
        """Drop what was compiled: it is translated anew."""
        raise NotImplementedError

    # -- parameters

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The function's signature."""
        return inspect.signature(self.fn)

    @functools.cached_property
    def params(self) -> list[KernelParam]:
        """The parameters."""
        never, unaligned = set(self.do_not_specialize), set(self.do_not_specialize_on_alignment)
        return [
            KernelParam(i, p, bool({i, p.name} & never), bool({i, p.name} & unaligned))
            for i, p in enumerate(self.signature.parameters.values())
        ]

    @functools.cached_property
    def constexprs(self) -> list[int]:
        """The places of the constexpr parameters."""
        return [p.num for p in self.params if p.is_constexpr]

    def repr(self, specialization: Any = None) -> str:
        """The kernel's name for profilers: ``repr`` of ``triton.jit``, or module and name."""
        return self._fn_name if self._repr is None else self._repr(specialization)

    @property
    def _fn_name(self) -> str:
        return f"{self.fn.__module__}.{self.fn.__qualname__}"

    # -- text

    @property
    def __translated__(self) -> Any:
        """The function that is translated: `fn`, or its twin with the text that `_unsafe_update_src` gave."""
        return self._twin or self.fn

    @property
    def where(self) -> Where | None:
        """The ``def`` line."""
        return place_of(self.__translated__)

    @property
    def raw_src(self) -> list[str]:
        """The lines of the function's text, decorators included."""
        return inspect.getblock(text_of(self.fn)[0])

    @property
    def starting_line_number(self) -> int:
        """The line of the first decorator, or of the ``def``."""
        return self.fn.__code__.co_firstlineno

    @property
    def src(self) -> str:
        """The text that is translated, from its ``def``, without indentation; set it with `_unsafe_update_src`."""
        lines, first = text_of(self.__translated__)
        return _from_def(inspect.getblock(lines), self.fn.__name__) if first else ""

    @src.setter
    def src(self, text: str) -> None:
        self._unsafe_update_src(text)

    def _unsafe_update_src(self, new_src: str) -> None:
        """Translate another text instead of the function's own, for templates that are filled in.

        Args:
            new_src: a ``def`` statement, as `src` gives it. Lines count on from the ``def`` line of the function.
        """
        place = place_of(self.fn)
        file, line = (place.file, place.line) if place else ("", 1)
        before = self.__translated__
        self._twin = with_text(self.fn, new_src, file, line)
        affected = list(_kernels) if was_read(before) else [self]  # whoever inlined the text that was
        for kernel in affected:
            kernel._key = None
            kernel.forget()

    def parse(self) -> ast.Module:
        """The syntax tree of `src`."""
        return ast.parse(self.src)

    # -- what the kernel depends on

    @property
    def hash(self) -> str | None:
        """The `cache_key`, once it was asked for; setting it to None drops it, and what was compiled."""
        return self._key

    @hash.setter
    def hash(self, value: str | None) -> None:
        self._key = value
        if value is None:
            self.forget()

    @property
    def cache_key(self) -> str:
        """A digest of the kernel's text and place, of the helpers it calls, and of the constants it reads."""
        if self._key is None:
            self._key = f"recursion:{self._fn_name}"  # for a kernel that calls itself
            parts, self._outside = [self.src, str(self.starting_line_number)], {}
            for name, value, scope in _referenced(self.__translated__):
                if isinstance(value, Reflection):
                    parts += [value.cache_key, str(value.noinline)]
                    self._outside |= value._outside
                elif callable(value) and not isinstance(value, type | constexpr):
                    parts.append(_text_or_name(value))
                else:
                    parts += [name, repr(value)]
                    if scope is not None:
                        self._outside[name, id(scope)] = (value, scope)
            self._key = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
        return self._key

    @property
    def used_global_vals(self) -> dict[tuple[str, int], tuple[Any, dict[str, Any]]]:
        """Constants from outside that the kernel and its helpers read: (name, id of the scope) -> (value, scope)."""
        self.cache_key  # noqa: B018 - finds them
        return self._outside

    @functools.cached_property
    def device_caches(self) -> Any:
        """For any device, a tuple whose first part is a dict of what was compiled, as `CompiledKernel` objects."""
        from frontend_triton_compat.warmup import Devices  # imported late: it knows kernels

        return Devices(self)  # type: ignore[arg-type]

    def preload(self, specialization_data: str) -> Any:
        """Compile what another process compiled, from the text that it gave to ``jit_cache_hook``."""
        from frontend_triton_compat.warmup import preload

        return preload(self, specialization_data)  # type: ignore[arg-type]

    def get_capture_scope(self) -> dict[str, Any]:
        """The names that the function sees: its module's, and those of the functions around it."""
        return {**self.fn.__globals__, **inspect.getclosurevars(self.fn).nonlocals}


def _from_def(lines: list[str], name: str) -> str:
    text = textwrap.dedent("".join(lines))
    at = text.find(f"def {name}")
    return text[max(at, 0) :]


def _text_or_name(fn: Any) -> str:
    inner = getattr(fn, "__wrapped__", getattr(fn, "fn", fn))
    if isinstance(inner, types.FunctionType):
        lines, first = text_of(inner)
        if first:
            return "".join(inspect.getblock(lines))
    return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__name__)}"


def _referenced(fn: types.FunctionType) -> Iterator[tuple[str, Any, dict[str, Any] | None]]:
    """What the text of a function takes from outside: name, value, and the scope that a plain constant is in.

    Modules, built-in functions and the names of the language are left out.
    """
    node, _ = read_function(fn)
    nonlocals = dict(inspect.getclosurevars(fn).nonlocals)
    local = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
    local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    seen: set[str] = set()
    for one in ast.walk(node):
        path = _path(one)
        if not path or path[0] in local or ".".join(path) in seen:
            continue
        seen.add(".".join(path))
        scope = nonlocals if path[0] in nonlocals else fn.__globals__
        if path[0] not in scope or hasattr(builtins, path[0]):
            continue
        value = scope[path[0]]
        for attribute in path[1:]:
            value = getattr(value, attribute, None)
        if value is None or isinstance(value, types.ModuleType) or _is_language(value):
            continue
        yield path[-1], value, scope if len(path) == 1 else None


def _path(node: ast.AST) -> list[str]:
    """``a.b.c`` as names; empty for anything else."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.Attribute):
        head = _path(node.value)
        return [*head, node.attr] if head else []
    return []


def _is_language(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return callable(value) and not isinstance(value, Reflection | constexpr) and module.startswith(__package__ or "")
