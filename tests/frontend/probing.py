"""Write probe kernels to a file and ask both front ends about them: ours and the real one."""

from __future__ import annotations

import contextlib
import io
import itertools

from bridge.diagnostics import Diagnostic
from frontend_triton_compat import ir, spec
from frontend_triton_compat.parse import parse
from frontend_triton_compat.types import dtype

from . import genuine
from .adapter import load_file, tl

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice

G_INT = 3
G_CONST = tl.constexpr(3)


@triton.jit
def helper_two(a, b=2):
    return a + b, a


@triton.jit
def helper_mixed(a):
    if a > 0:
        return a
    return 1.0


def plain(a):
    return a + 1


@triton.constexpr_function
def double(n):
    return 2 * n

"""
#: parameters that every probe kernel has: a pointer to each element type, an int and a constexpr
POINTERS = {f"p_{t}": t for t in genuine.TYPES}
PARAMS = ", ".join([*POINTERS, "n", "N: tl.constexpr"])
SIGNATURE = {**{p: "*" + genuine.TYPES[t] for p, t in POINTERS.items()}, "n": "i32", "N": "constexpr"}
_counter = itertools.count()


def ask_both(bodies: dict[str, str], tmp_path) -> tuple[dict, dict]:
    """(real answers, our answers) by probe name; an answer has `ok` and `types` or `why`."""
    text = HEADER
    for name, body in bodies.items():
        lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
        text += f"\n@triton.jit\ndef {name}({PARAMS}):\n{lines}\n"
    path = tmp_path / "probes.py"
    path.write_text(text)
    real = genuine.ask(path, {name: (SIGNATURE, {"N": 16}) for name in bodies}, tmp_path)
    module, _ = load_file(path, f"probes_{next(_counter)}")
    return real, {name: ask_ours(getattr(module, name).fn) for name in bodies}


def ask_ours(fn) -> dict:
    """What our front end says about one probe kernel."""
    params = {p: ir.Param(p, i, "pointer", dtype(t)) for i, (p, t) in enumerate(POINTERS.items())}
    count = len(params)
    params["n"] = ir.Param("n", count, "float", tl.int32)  # a run-time integer, as in a launch that is not specialised
    params["N"] = ir.Param("N", count + 1, "constexpr", None, 16)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            kernel = parse(fn, params, (4,))
        spec.check(kernel)
    except Diagnostic as problem:
        assert problem.where is not None and problem.why and problem.do, f"an incomplete diagnostic: {problem}"
        return {"ok": False, "why": str(problem), "slug": problem.slug, "line": problem.where.line}
    return {"ok": True, "types": genuine.normal(out.getvalue()), "kernel": kernel}
