"""The parser: places in messages, the shape of the IR, and what Python evaluates by itself."""

from __future__ import annotations

import functools
import typing

import pytest
import torch

from bridge.diagnostics import Diagnostic
from frontend_triton_compat import ir, spec
from frontend_triton_compat import jit as triton_jit
from frontend_triton_compat.parse import parse
from frontend_triton_compat.show import show

from . import reference
from .adapter import Jit, jit, tl


def params(fn, **given):
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    out = {}
    for i, n in enumerate(names):
        v = given[n]
        if isinstance(v, tl.dtype):
            out[n] = ir.Param(n, i, "pointer", v)
        elif isinstance(v, float):
            out[n] = ir.Param(n, i, "float", tl.float32)
        elif type(v) is int:
            out[n] = ir.Param(n, i, "int", tl.int32, v)
        else:
            out[n] = ir.Param(n, i, "constexpr", None, v[0] if isinstance(v, tuple) else v)
    return out


def translate(fn, grid=(1,), **given):
    kernel = parse(fn, params(fn, **given), grid)
    spec.check(kernel)
    return kernel


def kinds(kernel):
    return [op.kind for op in ir.walk(kernel.body)]


def marked(problem):
    """The text under the carets of a diagnostic."""
    w = problem.where
    return w.text()[w.col - 1 : w.end_col - 1]


def refused(fn, slug, **given):
    with pytest.raises(Diagnostic) as caught:
        translate(fn, **given)
    assert caught.value.slug == slug, str(caught.value)
    assert caught.value.why and caught.value.do
    return caught.value


F, I32 = tl.float32, tl.int32


# -- places ----------------------------------------------------------------------------------------------------------


def test_the_caret_is_under_the_offending_expression():
    def kernel(x, o):
        a = tl.load(x) + 1
        tl.store(o, a + tl.arange(0, 3))

    problem = refused(kernel, "block-shape", x=F, o=F)
    assert marked(problem) == "tl.arange(0, 3)"
    assert problem.where.function == "kernel"
    assert problem.where.line == kernel.__code__.co_firstlineno + 2
    assert "^^^^^^^^^^^^^^^" in str(problem)


def test_the_caret_counts_characters_not_bytes():
    def kernel(o):
        größe = 3; tl.store(o, größe + tl.arange(0, größe))  # fmt: skip  # noqa: E702

    assert marked(refused(kernel, "block-shape", o=F)) == "tl.arange(0, größe)"


def test_a_helper_is_blamed_at_its_own_line():
    @jit
    def helper(v):
        return v // 2

    def kernel(x, o):
        tl.store(o, helper(tl.load(x)))

    problem = refused(kernel, "operand-type", x=F, o=F)
    assert marked(problem) == "v // 2"
    assert problem.where.function == "helper"


def test_an_expression_over_two_lines_is_marked_to_the_end_of_the_first():
    def kernel(x, o):
        tl.store(o, tl.load(x,
                            other=0.0))  # fmt: skip

    assert marked(refused(kernel, "memory-access", x=F, o=F)) == "tl.load(x,"


def test_the_loop_carried_message_names_variable_types_and_assignment():
    def kernel(x, o, n):
        acc = tl.zeros((4,), tl.float16)
        for i in range(n):
            acc = acc + tl.load(x + i)
        tl.store(o + tl.arange(0, 4), acc)

    problem = refused(kernel, "loop-carried-type", x=F, o=F, n=8)
    assert marked(problem) == "acc = acc + tl.load(x + i)"
    assert all(word in str(problem) for word in ("`acc`", "fp16[4]", "fp32[4]"))


def test_a_python_error_keeps_its_cause():
    def kernel(o, T):
        tl.store(o, T[5])

    problem = refused(kernel, "kernel-python-error", o=F, T=((1, 2),))
    assert isinstance(problem.__cause__, IndexError)
    assert marked(problem) == "T[5]"


def test_every_operation_carries_its_place():
    def kernel(x, o, n):
        for i in range(n):
            tl.store(o + i, tl.load(x + i) * 2)

    kernel_ir = translate(kernel, x=F, o=F, n=4)
    first = kernel.__code__.co_firstlineno
    for op in ir.walk(kernel_ir.body):
        assert op.where.function == "kernel" and first <= op.where.line <= first + 2 and op.where.col > 0


def test_decorators_and_nesting_do_not_shift_lines():
    def decorate(**options):
        return lambda f: f

    if True:

        @decorate(
            a=1,
            b=2,
        )
        def kernel(o):
            tl.store(o, tl.arange(0, 5))

    assert marked(refused(kernel, "block-shape", o=F)) == "tl.arange(0, 5)"


# -- the shape of the IR -----------------------------------------------------------------------------------------------


def test_a_range_is_never_unrolled():
    def kernel(o, N):
        for i in range(N):
            tl.store(o + i, i)
        for j in range(4):
            tl.store(o + j, j)

    kernel_ir = translate(kernel, o=I32, N=(3,))
    assert kinds(kernel_ir).count("for") == 2
    assert kinds(kernel_ir).count("store") == 2


def test_static_loops_are_unrolled():
    def kernel(o, N):
        for i in tl.static_range(N):
            tl.store(o + i, i)
        for j in (7, 8):
            tl.store(o + j, j)

    kernel_ir = translate(kernel, o=I32, N=(3,))
    assert "for" not in kinds(kernel_ir) and kinds(kernel_ir).count("store") == 5


def test_launch_integers_fold_and_keep_their_names():
    def kernel(o, n, B):
        if tl.cdiv(n, B) == 4 and n > 10:
            tl.store(o + n, 1)
        else:
            tl.store(o, 2.5)

    kernel_ir = translate(kernel, o=I32, n=13, B=(4,))
    assert "if" not in kinds(kernel_ir)
    names = {op["name"]: op["value"] for op in ir.walk(kernel_ir.body) if op.kind == "const"}
    assert names["n"] == 13


def test_int32_arithmetic_on_launch_integers_wraps():
    def kernel(o, a, b):
        tl.store(o, a * b)
        tl.store(o + 1, a.to(tl.int64) * b)

    kernel_ir = translate(kernel, o=tl.int64, a=70_000, b=40_000)
    values = [op["value"] for op in ir.walk(kernel_ir.body) if op.kind == "const"]
    assert 70_000 * 40_000 in values and 70_000 * 40_000 - 2**32 in values


def test_only_what_a_loop_changes_is_carried():
    def kernel(x, o, n):
        p = x + n
        keep = tl.load(x)
        unused = 0.0
        acc = 0.0
        for i in range(n):
            keep = keep
            unused += 1.0
            t = tl.load(p + i)
            acc += t * keep
        tl.store(o, acc)

    (loop,) = [op for op in ir.walk(translate(kernel, x=F, o=F, n=8).body) if op.kind == "for"]
    assert len(loop.results) == 1
    assert loop.regions[0].args[1].name == "acc"


def test_an_early_return_puts_the_rest_into_the_other_branch():
    def kernel(x, o):
        v = tl.load(x)
        if v < 0:
            return
        tl.store(o, v)

    kernel_ir = translate(kernel, x=F, o=F)
    (branch,) = [op for op in ir.walk(kernel_ir.body) if op.kind == "if"]
    assert [op.kind for op in branch.regions[0].ops] == []
    assert "store" in [op.kind for op in branch.regions[1].ops]


def test_show_is_the_same_text_for_the_same_kernel():
    def kernel(x, o, n, eps, B):
        i = tl.arange(0, B)
        acc = 0.0
        for k in range(n):
            acc += tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0)
        tl.store(o, acc + eps)

    texts = {show(translate(kernel, x=F, o=F, n=3, eps=0.5, B=(4,))) for _ in range(2)}
    (text,) = texts
    head, *lines = text.splitlines()
    assert head.startswith("kernel kernel(x: *fp32, o: *fp32, n: int32 = 3, eps: fp32, B: constexpr = 4) grid=(1, 1")
    body = "\n".join(line.split("  #")[0] for line in lines)
    assert "  %acc.1 = for %k in (%6, %n, %7) with %acc.2 = %acc : fp32" in body, body
    assert "  %n = const {value=3, name='n'} : int32\n" in body
    assert "    yield %acc.3\n" in body
    assert "reduce sum" in body and "{axis=0} : fp32" in body


# -- Python evaluates what is not a tile -------------------------------------------------------------------------

SCALE = 3
TABLE = {"a": 2}


class Point(typing.NamedTuple):
    x: object
    y: object


class Config:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, v):
        if v > 0:
            v = v * self.factor
        return v


def plain_helper(v, by=2):
    if by > 1:
        v = v * by
    return v


def run(kernel_fn, *tensors, grid=(1,), **constexprs):
    Jit(kernel_fn).launch(grid, *tensors, **constexprs)
    return tensors[-1]


def test_globals_closures_and_plain_helpers():
    offset = 10

    def kernel(x, o):
        v = tl.load(x)
        tl.store(o, plain_helper(v, by=SCALE) + offset + TABLE["a"])

    assert run(kernel, torch.tensor([2.0]), torch.zeros(1)).item() == 2 * 3 + 10 + 2


def test_a_factory_of_kernels_takes_functions():
    def make(op, post):
        def kernel(x, o, B: tl.constexpr):
            i = tl.arange(0, B)
            tl.store(o + i, post(op(tl.load(x + i), 1.0)))

        return kernel

    x = torch.arange(4.0)
    assert run(make(lambda a, b: a + b, tl.exp), x, torch.zeros(4), B=4).allclose((x + 1).exp())
    assert run(make(tl.maximum, lambda v: -v), x, torch.zeros(4), B=4).tolist() == [-1, -1, -2, -3]
    assert run(make(functools.partial(tl.fma, 2.0), tl.abs), x, torch.zeros(4), B=4).tolist() == [1, 3, 5, 7]


def test_methods_and_objects_of_the_users():
    config = Config(4.0)

    def kernel(x, o):
        tl.store(o, config.apply(tl.load(x)))

    assert run(kernel, torch.tensor([2.0]), torch.zeros(1)).item() == 8
    assert run(kernel, torch.tensor([-2.0]), torch.zeros(1)).item() == -2


def test_containers_of_tiles_are_carried_by_loops_and_branches():
    def kernel(x, o, n):
        point = Point(0.0, (1, [tl.load(x)]))
        state = {"sum": 0.0, "last": point}
        for i in range(n):
            v = tl.load(x + i)
            if v > 2:
                point = Point(point.x + v, (point.y[0] + 1, [v]))
            else:
                point = Point(point.x, (point.y[0], [v * 10]))
            state = {"sum": state["sum"] + v, "last": point}
        tl.store(o, state["sum"])
        tl.store(o + 1, state["last"].x)
        tl.store(o + 2, state["last"].y[0])
        tl.store(o + 3, state["last"].y[1][0])

    def launch(x, o, n):
        kernel(x, o, n)

    x = torch.tensor([1.0, 3.0, 4.0, 2.0])
    o = torch.zeros(4)
    Jit(kernel).launch((1,), x, o, 4)
    assert o.tolist() == [10, 7, 3, 20]


def test_a_list_changed_inside_a_run_time_loop_is_refused():
    def kernel(o, n):
        seen = []
        for i in range(n):
            seen.append(i)
        tl.store(o, len(seen))

    assert "`seen`" in str(refused(kernel, "not-translated", o=I32, n=4))


def test_inner_functions_see_later_values_of_outer_names():
    def kernel(o):
        a = 1

        def inner(b):
            return a + b

        a = 5
        tl.store(o, inner(2))

    assert run(kernel, torch.zeros(1, dtype=torch.int32)).item() == 7


def test_recursion_on_a_constexpr_ends():
    def power(v, n):
        return v if n == 0 else v * power(v, n - 1)

    def kernel(x, o):
        tl.store(o, power(tl.load(x), 3))

    assert run(kernel, torch.tensor([2.0]), torch.zeros(1)).item() == 16


def test_endless_recursion_is_a_diagnostic():
    @jit
    def forever(v):
        return forever(v)

    def kernel(x, o):
        tl.store(o, forever(tl.load(x)))

    refused(kernel, "not-translated", x=F, o=F)


def test_tuple_arguments_of_a_kernel():
    def kernel(pair, sizes, o):
        tl.store(o, tl.load(pair[0]) * sizes[1] + tl.load(pair[1]))

    o = torch.zeros(1)
    Jit(kernel).launch((1,), (torch.tensor([2.0]), torch.tensor([5.0])), (3, 4), o)
    assert o.item() == 13


def test_returns_on_several_paths_of_a_helper():
    @jit
    def grade(v):
        if v > 10:
            return 3
        elif v > 5:
            return 2
        if v > 2:
            v = v * 1
        else:
            return 0
        return 1

    def kernel(x, o, n):
        for i in range(n):
            tl.store(o + i, grade(tl.load(x + i)))

    o = torch.zeros(5, dtype=torch.int32)
    Jit(kernel).launch((1,), torch.tensor([11.0, 7.0, 3.0, 1.0, 5.5]), o, 5)
    assert o.tolist() == [3, 2, 1, 0, 2]


def test_a_genuine_jit_function_is_translated(tmp_path):
    """A kernel decorated by the real package, with the real `tl` among its globals."""
    pytest.importorskip("triton")
    import importlib.util

    path = tmp_path / "genuine_kernel.py"
    path.write_text(
        "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
        "ONE = tl.constexpr(1)\n\n@triton.jit\ndef half(v):\n    return tl.math.exp(v) * 0.5\n\n"
        "@triton.jit\ndef kernel(x, o, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n"
        "    v = tl.load(x + i, mask=i < n, other=ONE)\n    s = tl.cdiv(n, 4)\n"
        "    tl.store(o + i, half(v) + libdevice.tanh(v) + s + tl.sum(v, 0).to(tl.float32), mask=i < n)\n"
    )
    loaded = importlib.util.spec_from_file_location("genuine_kernel", path)
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    given = {
        "x": ir.Param("x", 0, "pointer", tl.float32),
        "o": ir.Param("o", 1, "pointer", tl.float32),
        "n": ir.Param("n", 2, "int", tl.int32, 6),
        "B": ir.Param("B", 3, "constexpr", None, 8),
    }
    kernel = parse(module.kernel, given, (1,))
    spec.check(kernel)
    x, o = torch.randn(6), torch.zeros(6)
    reference.run(kernel, {"x": x.numpy(), "o": o.numpy()})
    torch.testing.assert_close(o, x.exp() * 0.5 + x.tanh() + 2 + x.sum() + 2)


def test_a_kernel_without_source_is_a_diagnostic():
    scope = {"tl": tl}
    exec("def made(o):\n".__add__("    tl.store(o, 1.0)\n"), scope)
    with pytest.raises(Diagnostic) as caught:
        parse(scope["made"], {"o": ir.Param("o", 0, "pointer", tl.float32)}, (1,))
    assert caught.value.slug == "no-source"


def _fill_in(template, value):
    text = template.replace("VALUE", value)
    scope = {"tl": tl, "jit": triton_jit}
    exec(text, scope)
    return scope["made"]


def test_the_text_of_an_executed_kernel_is_found_where_it_was_executed():
    template = "@jit\ndef made(o, n: tl.constexpr):\n    # a comment\n    tl.store(o + tl.arange(0, n), VALUE)\n"
    out = torch.zeros(4)
    for value in ("1.5", "2.5"):
        _fill_in(template, value)[(1,)](out, n=4)
        assert out.tolist() == [float(value)] * 4
    with pytest.raises(Diagnostic) as caught:
        _fill_in(template, "undefined")[(1,)](out, n=4)
    assert caught.value.slug == "undefined-name"
    assert caught.value.where.line == 4 and "undefined" in caught.value.where.text()


def test_a_missing_parameter_is_a_diagnostic():
    def kernel(x, o):
        tl.store(o, tl.load(x))

    with pytest.raises(Diagnostic) as caught:
        parse(kernel, {"x": ir.Param("x", 0, "pointer", tl.float32)}, (1,))
    assert caught.value.slug == "bad-argument"


def test_a_tl_function_outside_a_kernel_names_the_users_line():
    with pytest.raises(Diagnostic) as caught:
        tl.zeros((4,), tl.float32)
    assert caught.value.slug == "outside-kernel"
    assert caught.value.where.file == __file__


def test_the_law_catches_a_broken_kernel():
    def kernel(x, o):
        tl.store(o, tl.load(x) + 1)

    kernel_ir = translate(kernel, x=F, o=F)
    add = next(op for op in ir.walk(kernel_ir.body) if op.kind == "map")
    add.operands = (add.operands[0], kernel_ir.body.ops[0].result)
    with pytest.raises(Diagnostic, match="internal-error"):
        spec.check(kernel_ir)
