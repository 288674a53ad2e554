"""The kernels of a file, and a launch of each: what `check` and `port` work on.

Input: files and the ``--args`` of the command line. Output: `Subject`: a kernel with one launch, or with the diagnostic
that says why there is none. Law: sources of launches, in order: ``--args``; the file's own ``CHECK`` list; a run of the
file's ``run(triton, tl, torch, device)`` or ``main()``, of which the launch with the most elements counts. A file is
run only when some kernel has no launch otherwise; what the run raises does not lose the launches before it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import frontend_triton_compat as triton
from bridge.diagnostics import Diagnostic, Where
from frontend_triton_compat import Autotuner, JITFunction, KernelInterface
from frontend_triton_compat import record as records
from frontend_triton_compat.cli.files import Usage
from frontend_triton_compat.cli.imports import import_refused, importable, kernels_in_text, no_launch, quiet
from frontend_triton_compat.cli.samples import LIMIT, Sample, of_launches, of_record


@dataclass(frozen=True)
class Subject:
    """A kernel and the launch that it is checked for.

    Attributes:
        name: the kernel's name.
        file: the file, as the command line has it.
        line: of its ``def``.
        kernel: the kernel; None when the file can't be imported.
        record: the launch; None when none is known.
        problem: why there is no launch, or no kernel.
        grid: the launch's grid as it was given, a function perhaps; None where only the record's numbers are known.
        samples: launches with data, for `verify`.
        tuner: the kernel's `autotune` wrapper, where the launch leaves the configuration to it.
    """

    name: str
    file: str
    line: int
    kernel: Any = None
    record: Mapping[str, Any] | None = None
    problem: Diagnostic | None = None
    grid: Any = None
    samples: tuple[Sample, ...] = ()
    tuner: Any = None

    @property
    def where(self) -> Where | None:
        """The kernel's ``def`` line."""
        return innermost(self.kernel).where if self.kernel is not None else None

    def arguments(self) -> dict[str, Any]:
        """The launch's arguments, arrays without data.

        Raises:
            Diagnostic: the record can't be rebuilt.
        """
        assert self.record is not None
        scope = innermost(self.kernel).fn.__globals__
        return {name: records.restore(value, scope) for name, value in self.record["args"].items()}

    def spec(self) -> str:
        """The launch as text, as ``--args`` takes it."""
        assert self.record is not None
        args = [f"{name}={_as_text(value)}" for name, value in self.record["args"].items()]
        grid = tuple(self.record["grid"])
        while len(grid) > 1 and grid[-1] == 1:
            grid = grid[:-1]
        return f"{self.name}({', '.join(args)}, grid={grid})"


def innermost(kernel: Any) -> JITFunction:
    """The kernel behind its wrappers."""
    return kernel if isinstance(kernel, JITFunction) else kernel.kernel


def _as_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_as_text, value))}{',' if len(value) == 1 else ''})"
    if not isinstance(value, dict):
        return repr(value)
    if "descriptor" in value:
        padding = f", {value['padding']!r}" if value["padding"] != "zero" else ""
        return f"descriptor({_as_text(value['descriptor'])}, {tuple(value['block_shape'])}{padding})"
    if "named" in value:
        return f"({', '.join(map(_as_text, value['items']))},)"
    if "shape" in value:
        shape = ",".join(map(str, value["shape"]))
        text = f"{records.short_name(value['dtype'])}[{shape}]"
        if "strides" in value and list(torch.empty(value["shape"], device="meta").stride()) != list(value["strides"]):
            text += f".strides({', '.join(map(str, value['strides']))})"
        text += f" % {value['below']}" if "below" in value else ""
        return f"sorted({text})" if value.get("sorted") else text
    if "type" in value:
        return f"tl.{triton.language.dtype(value['type']).numpy_name.replace('bool_', 'int1')}"
    if "torch_dtype" in value:
        return f"torch.{value['torch_dtype']}"
    if "float" in value:
        return f"float({value['float']!r})"
    return str(value.get("function", value))


# -- all subjects


def subjects_of(
    files: Sequence[Path], specs: Sequence[str], only: Sequence[str] = (), run: bool = True, data: bool = False
) -> dict[Path, list[Subject]]:
    """The kernels of files, each with a launch where one is known.

    Args:
        files: Python files; imported, in this process.
        specs: the ``--args``.
        only: names of kernels; every kernel when empty.
        run: whether a file may be run to find launches.
        data: whether samples with data are wanted.

    Raises:
        Usage: a spec or a name fits no kernel of the files, or can't be read.
    """
    given = read_specs(specs)
    inline = {id(r): r for r in given if not r["file"]}
    out, known = {}, set()
    for path in files:
        with importable(path) as name:
            found, names, used = _subjects(path, name, given, only, run, data)
        known |= names
        for one in used:
            inline.pop(one, None)
        out[path] = found
    unknown = [r["kernel"] for r in inline.values()] + [n for n in only if n not in known]
    if unknown and known:
        raise Usage(f"no file has a kernel {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return out


def read_specs(specs: Sequence[str]) -> list[dict[str, Any]]:
    """The launches of ``--args``.

    Raises:
        Usage: one can't be read.
    """
    out: list[dict[str, Any]] = []
    for text in specs:
        if Path(text).is_file() or text.endswith(".json"):
            out += _read_json(Path(text))
            continue
        try:
            out.append(records.parse_spec(text))
        except Diagnostic as wrong:
            raise Usage(f"{wrong.what}: {wrong.why}\n  {wrong.do[0]}") from wrong
    return out


def _read_json(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise Usage(f"{path} can't be read: {problem}") from problem
    keys = {"kernel": str, "file": str, "grid": list, "args": dict}
    if not isinstance(found, list) or not all(
        isinstance(r, dict) and all(isinstance(r.get(k), t) for k, t in keys.items()) for r in found
    ):
        raise Usage(f"{path} is not a list of launches as `torch-pallas record` writes it")
    return found


def _subjects(
    path: Path, module_name: str, given: Sequence[Mapping[str, Any]], only: Sequence[str], run: bool, data: bool
) -> tuple[list[Subject], set[str], set[int]]:
    """The file's subjects, the names of all its kernels, and the ids of the specs that were used."""
    try:
        with quiet():
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as problem:  # the file's own; told as a row for each of its kernels
        refused, line = import_refused(path, problem)
        names = kernels_in_text(path)
        found = [n for n in names if not only or n[0] in only] or [(path.stem, line)]
        return [Subject(n, str(path), at, problem=refused) for n, at in found], {n for n, _ in names}, set()
    kernels = {innermost(k).fn.__name__: k for k in vars(module).values() if _is_kernel_of(k, path)}
    aliases = {name: k for name, k in vars(module).items() if _is_kernel_of(k, path)}
    launches: list[tuple[Any, Mapping[str, Any], Any, tuple[Sample, ...]]] = []
    used: set[int] = set()

    def take(records_: Sequence[Mapping[str, Any]]) -> None:
        for r in records_:
            kernel = aliases.get(r["kernel"]) or kernels.get(r["kernel"])
            if kernel is None or (r["file"] and Path(r["file"]).name != path.name):
                continue
            inner = innermost(kernel)
            samples = of_record(r, inner.fn.__globals__) if data else ()
            launches.append((inner if set(inner.arg_names) <= set(r["args"]) else kernel, r, None, samples))
            used.add(id(r))

    written = [r for r in given if not r["file"]]
    take([*written, *_largest([r for r in given if r["file"]])])
    covered = {id(innermost(k)) for k, *_ in launches}
    take([r for r in _declared(module, path) if _key_of(r, aliases, kernels) not in covered])
    covered = {id(innermost(k)) for k, *_ in launches}
    wanted = lambda inner: (
        not only
        or inner.fn.__name__ in only
        or any(name in only and innermost(k) is inner for name, k in aliases.items())
    )
    helpers = _helpers(module, path)
    missing = [
        i for k in aliases.values() if id(i := innermost(k)) not in covered and id(i) not in helpers and wanted(i)
    ]
    stopped: BaseException | None = None
    recorded_run = _entry(module) if run else None
    if missing and recorded_run is not None:
        seen, stopped = _run(recorded_run, path, LIMIT if data else 0)
        mine = [one for one in seen if _is_kernel_of(one.kernel, path) and id(one.kernel) not in covered]
        for place in dict.fromkeys((one.record["line"], one.record["kernel"]) for one in mine):
            group = [one for one in mine if (one.record["line"], one.record["kernel"]) == place]
            best = max(enumerate(group), key=lambda pair: (records.size_of(pair[1].record), pair[0]))[1]
            launches.append((best.kernel, best.record, best.grid, of_launches(group)))
    covered = {id(innermost(k)) for k, *_ in launches}
    passed = {
        v["function"] for _, r, *_ in launches for v in r["args"].values() if isinstance(v, dict) and "function" in v
    }
    subjects = [
        Subject(
            i.fn.__name__,
            str(path),
            i.where.line if i.where else 0,
            k,
            r,
            grid=grid,
            samples=samples,
            tuner=_tuner_of(i, aliases.values()) if grid is not None or k is not i else None,
        )
        for k, r, grid, samples in launches
        if wanted(i := innermost(k))
    ]
    for inner in {id(i): i for i in missing}.values():
        if id(inner) not in covered and inner.fn.__name__ not in passed:
            line = inner.where.line if inner.where else 0
            problem = no_launch(inner, recorded_run is not None, run, stopped)
            subjects.append(Subject(inner.fn.__name__, str(path), line, inner, problem=problem))
    every = set(kernels) | set(aliases) | {s.name for s in subjects}
    return sorted(subjects, key=lambda s: s.line), every, used


def _tuner_of(inner: JITFunction, kernels: Iterable[Any]) -> Autotuner | None:
    for kernel in kernels:
        wrapper = kernel
        while wrapper is not inner and not isinstance(wrapper, JITFunction | Autotuner):
            wrapper = wrapper.fn
        if isinstance(wrapper, Autotuner) and innermost(wrapper) is inner:
            return wrapper
    return None


def _key_of(record: Mapping[str, Any], *scopes: Mapping[str, Any]) -> int:
    for scope in scopes:
        if record["kernel"] in scope:
            return id(innermost(scope[record["kernel"]]))
    return 0


def _largest(recorded: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    best: dict[Any, Mapping[str, Any]] = {}
    for r in recorded:
        key = (r["file"], r["kernel"], r.get("line"))
        if key not in best or records.size_of(r) >= records.size_of(best[key]):
            best[key] = r
    return list(best.values())


def _declared(module: ModuleType, path: Path) -> list[dict[str, Any]]:
    texts = getattr(module, "CHECK", [])
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
        return []  # a name of the user's own
    try:
        return [records.parse_spec(text) for text in texts]
    except Diagnostic as wrong:
        raise Usage(f"{path}: CHECK: {wrong.what}: {wrong.why}\n  {wrong.do[0]}") from wrong


# -- what a file has


def _is_kernel_of(value: Any, path: Path) -> bool:
    if not isinstance(value, KernelInterface):
        return False
    where = innermost(value).where
    return where is not None and Path(where.file).resolve() == path.resolve()


def _helpers(module: ModuleType, path: Path) -> set[int]:
    """Ids of functions that other kernels call, or that return a value: not kernels of their own."""
    found = set()
    for value in vars(module).values():
        if not _is_kernel_of(value, path):
            continue
        inner = innermost(value)
        scope = {**inner.fn.__globals__, **inspect.getclosurevars(inner.fn).nonlocals}
        for name in _names_in(inner.fn.__code__):
            called = scope.get(name)
            if isinstance(called, KernelInterface) and called is not value:
                found.add(id(innermost(called)))
        if _returns_a_value(inner.fn):
            found.add(id(inner))
    return found


def _names_in(code: Any) -> set[str]:
    inside = [c for c in code.co_consts if inspect.iscode(c)]
    return {*code.co_names, *code.co_freevars}.union(*map(_names_in, inside))


def _returns_a_value(fn: Callable[..., Any]) -> bool:
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(fn)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(tree))


def _entry(module: ModuleType) -> Callable[[], Any] | None:
    """What is run to see launches, or None."""
    run = getattr(module, "run", None)
    if inspect.isfunction(run) and list(inspect.signature(run).parameters) == ["triton", "tl", "torch", "device"]:
        return lambda: run(triton, triton.language, torch, "cpu")
    main = getattr(module, "main", None)
    if inspect.isfunction(main):
        parameters = inspect.signature(main).parameters.values()
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if all(p.default is not p.empty or p.kind in optional for p in parameters):
            return main
    return None


def _run(entry: Callable[[], Any], path: Path, keep: int) -> tuple[list[records.Launch], BaseException | None]:
    argv, sys.argv = sys.argv, [str(path)]
    try:
        with quiet():
            return records.run_recorded(entry, keep)
    finally:
        sys.argv = argv
