"""Every row of the op table on a TPU: values on Pallas' TPU interpreter, acceptance by the real compiler.

Truth: the row's NumPy reference; where a row has none, its text is NumPy's own meaning. No row may fall through to a
message of the compiler: it has a form, or a diagnostic that the table names.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bridge.diagnostics.registry import entries
from frontend_triton_compat.language.table import REDUCTIONS, ROWS
from pallas_core import compat, offline
from pallas_core.targets.tpu import CHIPS

from . import tpu_rows

SHAPE = (8, 32)
#: units of the last place of fp32 that a function may be off
ULPS = {
    "lgamma": 60,
    "pow": 60,
    "exp10": 16,
    "erfinv": 40,
    "sinpi": 16,
    "cospi": 16,
    "normcdf": 40,
    "tan": 8,
    "erfc": 12,
}
#: the interpreter's program is run once
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
CASES = {d: list(tpu_rows.cases(d)) for d in tpu_rows.KINDS}
#: functions without an fp32 form, and roundings in a direction
REFUSED = {"j0", "j1", "y0", "y1", "i0", "i1", "tgamma", "erfcinv", "erfcx", "normcdfinv"} | {
    f"{op}_{mode}" for op in ("add", "mul", "div", "sqrt", "fma", "fp32", "fp64") for mode in ("rz", "rd", "ru")
}


def wanted(case, values):
    row = case.row
    exact = [v.astype(np.float32) if v.dtype == jnp.bfloat16 else v for v in values]
    if row.name.startswith("histogram"):  # a histogram of every row
        return np.stack([row.reference(*each, **dict(case.attrs)) for each in zip(*exact)])
    if row.reference is not None:
        with np.errstate(all="ignore"):
            if row.family in ("unary", "binary", "ternary"):
                return row.reference(*(v.ravel() for v in exact)).reshape(exact[0].shape)
            return row.reference(*exact, **dict(case.attrs))
    scope = {"jnp": np, "lax": np}
    names = [f"v{i}" for i in range(len(values))]
    code = row.code_by_kind.get(tpu_rows.KINDS[case.dtypes[-1]], row.code)
    with np.errstate(all="ignore"):
        return eval(code.format(*names), scope, dict(zip(names, exact)))


def compare(case, got, want):
    want = np.asarray(want)
    if got.dtype == jnp.bfloat16:
        np.testing.assert_allclose(
            got.astype(np.float32),
            want.astype(np.float32),
            rtol=2**-7,
            atol=1e-2 if case.row.family in ("reduce", "scan") else 1e-30,
        )
    elif got.dtype == np.float32:
        ulps = ULPS.get(case.row.name, 4 if case.row.accepts != "any" else 8)
        spacing = np.spacing(np.abs(want).astype(np.float32))
        off = np.abs(got.astype(np.float64) - want.astype(np.float64)) / spacing
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | (off <= ulps)
        assert same.all(), (case.name, got[~same][:5], want[~same][:5], off[~same].max())
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=case.name)


@pytest.mark.parametrize(
    "dtype", [d if d in ("float32", "int32") else pytest.param(d, marks=pytest.mark.slow) for d in CASES]
)
def test_values(dtype):
    group = CASES[dtype]
    values = [tpu_rows.operands(c, SHAPE) for c in group]
    flat = [tpu_rows.in_memory(x) for v in values for x in v]
    call = tpu_rows.program(group, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in flat])
    with compat.x64(False), compat.interpreted_tpu(detect_races=True, uninitialized_memory="nan"):
        program = jax.jit(call).lower(*flat).compile(compiler_options=FAST)
        results = jax.block_until_ready(program(*flat))
    compat.reset_interpreter()
    for case, own, got in zip(group, values, results):
        want = wanted(case, own)
        want = want if isinstance(want, tuple) else (want,)
        for g, w in zip(got, want):
            w = np.expand_dims(w, dict(case.attrs)["axis"]) if case.row.family == "reduce" else w
            compare(case, np.asarray(g), w)


def test_a_row_has_a_form_or_a_diagnostic():
    slugs = {entry.slug for entry in entries()}
    refused = set()
    for row in (*ROWS.values(), *REDUCTIONS.values()):
        for kind in ("float", "int", "uint", "bool"):
            code = row.code_for("tpu", kind)
            if code.startswith("!"):
                assert code[1:] in slugs
                refused.add(row.name)
    assert refused == REFUSED


def accepted(dtype, target, group):
    values = [tpu_rows.in_memory(x) for c in group for x in tpu_rows.operands(c, (32, 256))]
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in values]
    offline.compile_for(tpu_rows.program(group, specs), specs, target)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("dtype", CASES)
def test_the_compiler_takes_a_sample(dtype):
    pytest.importorskip("libtpu")
    accepted(dtype, "tpu:v5e", CASES[dtype][::4])


@pytest.mark.slow
@pytest.mark.tpu_offline
@pytest.mark.parametrize("chip", [c for c in CHIPS if c in ("v5e", "v6e", "7x")])
@pytest.mark.parametrize("dtype", CASES)
def test_the_compiler_takes_every_row(dtype, chip):
    pytest.importorskip("libtpu")
    for start in range(0, len(CASES[dtype]), 24):
        accepted(dtype, f"tpu:{chip}", CASES[dtype][start : start + 24])
