"""Programs called as machine code: the same bits as through XLA, and nothing called that is not understood."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bridge import engine as engines
from bridge.engine import Engine, direct
from bridge.native import native

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


@pytest.fixture
def engine():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Engine.current()
    torch.set_num_threads(before)


def made(engine, fn, operands, results, lanes=False):
    """The program of `fn`, and its direct form."""
    program = engine.compile(fn, [jax.ShapeDtypeStruct(*o) for o in operands], lanes=lanes)
    return program, direct(program, operands, results, engine)


def called(found, inputs, outputs):
    words, argument, _ = frame = found.frame()
    for i, t in enumerate((*inputs, *outputs)):
        assert t.data_ptr() % 64 == 0
        words[i] = t.data_ptr()
    assert not found.run(argument)
    del frame
    return outputs


def picked(x, i):
    rows = jnp.flip(jnp.take(x, i, axis=0), 1) * 2
    return [rows + jnp.array([1.0, 2.0, 4.0, 8.0] * 16, jnp.float32), jnp.transpose(x).copy(), rows.sum(1).max()]


def test_several_kernels_results_and_constants(engine):
    operands = [((128, 64), F32), ((50,), I64)]
    results = [((50, 64), F32), ((64, 128), F32), ((), F32)]
    _, found = made(engine, picked, operands, results)
    assert found is not None
    x, i = torch.randn(128, 64), torch.randint(0, 128, (50,))
    rows, turned, most = called(found, [x, i], [torch.empty(s) for s, _ in results])
    expected = x.numpy()[i.numpy()][:, ::-1] * 2
    np.testing.assert_allclose(rows, expected + np.array([1.0, 2, 4, 8] * 16, np.float32), rtol=1e-6)
    np.testing.assert_array_equal(turned, x.numpy().T)
    np.testing.assert_allclose(most, expected.astype(np.float64).sum(1).max(), rtol=1e-5)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float64", "bool"]
)
def test_dtypes(engine, dtype):
    kind = jnp.dtype(dtype)
    _, found = made(
        engine,
        lambda x, y: [jnp.where(x == y, x, y), x != y],
        [((33,), kind)] * 2,
        [((33,), kind), ((33,), jnp.dtype(bool))],
    )
    assert found is not None
    x, y = (torch.randint(0, 2, (33,)).to(getattr(torch, dtype)) for _ in range(2))
    kept, differ = called(found, [x, y], [torch.empty_like(x), torch.empty(33, dtype=torch.bool)])
    assert torch.equal(kept, torch.where(x == y, x, y)) and torch.equal(differ, x != y)


@pytest.mark.parametrize("number", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("kind", [bool, np.int32])
def test_conditions(engine, number, kind):
    def either(x):
        index = (x[0] > 0) if kind is bool else x[0].astype(jnp.int32)
        one, two = (lambda v: jnp.flip(v * 3, 0)), lambda v: jnp.where(v > 0, v, jnp.flip(v, 0) - 5)
        found = jax.lax.cond(index, one, two, x) if kind is bool else jax.lax.switch(index, [two, one], x)
        return [found + 1]

    row = ((64,), F32)
    _, found = made(engine, either, [row], [row])
    assert found is not None
    x = torch.randn(64)
    x[0] = number
    (out,) = called(found, [x], [torch.empty(64)])
    torch.testing.assert_close(out, 1 + (x.flip(0) * 3 if number > 0 else torch.where(x > 0, x, x.flip(0) - 5)))


PRODUCTS = [
    "ik,kj->ij", "ik,jk->ij", "ki,kj->ij", "ki,jk->ij", "ik,kj->ji", "bik,bkj->bij", "bik,bjk->bij", "bki,bkj->bij",
    "bik,bkj->bji", "abik,abjk->abij", "ik,k->i", "k,kj->j", "k,k->", "bik,bk->bi",
]  # fmt: skip


@pytest.mark.parametrize("sizes", [(33, 65, 31, 9, 10), (1, 70, 30, 4, 2), (50, 1, 30, 4, 2), (50, 70, 1, 4, 2)])
@pytest.mark.parametrize("form", PRODUCTS)
def test_matrix_products_are_those_of_torchs_blas(engine, form, sizes):
    size = dict(zip("ijkba", sizes))
    sides, result = form.split("->")
    shapes = [tuple(size[c] for c in side) for side in (*sides.split(","), result)]
    for dtype in (torch.float32, torch.float64):
        kind = jnp.dtype(str(dtype).removeprefix("torch."))
        rows = [(shape, kind) for shape in shapes]
        _, found = made(engine, lambda x, y: [jnp.einsum(form, x, y) + 1], rows[:2], rows[2:], lanes=True)
        # XLA writes out small ones itself, and those with vectors.
        assert found is not None and (found.rounds or sizes[0] != 33 or len(result) < 2 or result == "bi")
        x, y = (torch.randn(shape, dtype=torch.float64) for shape in shapes[:2])
        expected = torch.einsum(form, x.to(dtype).double(), y.to(dtype).double()) + 1
        given = [torch.empty(t.shape, dtype=dtype).copy_(t) for t in (x, y)]
        (out,) = called(found, given, [torch.empty(shapes[2], dtype=dtype)])
        tolerance = 70 * torch.finfo(dtype).eps
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["half", "large", "beside a sort"])
def test_products_that_xlas_library_does_better_are_left_to_it(engine, kind):
    side = 512 if kind == "large" else 64
    square = ((side, side), jnp.dtype(jnp.bfloat16) if kind == "half" else F32)
    multiply = lambda x, y: [jnp.sort(x @ y) if kind == "beside a sort" else x @ y]
    assert made(engine, multiply, [square, square], [square], lanes=True)[1] is None


def test_a_product_of_other_matrices_is_not_called(engine):
    square = [((16, 16), F32)] * 2
    program, found = made(engine, lambda x, y: [x @ y], square, square[:1], lanes=True)
    assert found is not None
    other, _ = made(engine, lambda x, y: [x @ y.T], square, square[:1], lanes=True)
    program.written = other.written
    assert direct(program, square, square[:1], engine) is None


def test_empty_operands_are_left_to_xla(engine):
    assert made(engine, lambda x: [x + 1], [((0, 4), F32)], [((0, 4), F32)])[1] is None


def test_what_computes_other_bits_is_not_called(engine, monkeypatch):
    row = [((16,), F32)]
    program, found = made(engine, lambda x: [x + 1], row, row)
    assert found is not None
    other, _ = made(engine, lambda x: [x + 2], row, row)
    program.written = other.written
    assert direct(program, row, row, engine) is None


def test_what_is_not_understood_is_not_loaded(engine):
    row = [((16,), F32)]
    program, found = made(engine, lambda x: [jnp.sin(x) + 1], row, row)
    assert found is not None
    written = program.written()
    assert native(lambda: written, row, row) is not None
    for length in range(0, len(written) - 1, 97):
        assert native(lambda n=length: written[:n], row, row) is None
    assert native(lambda: written, [((8,), F32)], row) is None
    assert native(lambda: written, row, [((8,), F32)]) is None
    assert native(lambda: written.replace(b"\x7fELF", b"\x7fELG"), row, row) is None


def test_threads_have_frames_of_their_own(engine):
    row = ((4096,), F32)
    _, found = made(engine, lambda x: [jnp.flip(jnp.cumsum(x) * 2, 0) + x], [row], [row])
    if found is None:
        pytest.skip("the running sum is no plain kernel in this version")
    wrong = []

    def work(seed):
        x = torch.full((4096,), float(seed))
        expected = torch.flip(torch.cumsum(x, 0) * 2, (0,)) + x
        for _ in range(200):
            (out,) = called(found, [x], [torch.empty(4096)])
            if not torch.equal(out, expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_versions_that_nobody_has_tried_go_through_xla(engine, monkeypatch):
    monkeypatch.setattr(engines.compat, "code_is_known", False)
    assert made(engine, lambda x: [x + 1], [((16,), F32)], [((16,), F32)])[1] is None


def test_large_programs_keep_the_threads_of_xla(engine):
    row = ((engines.SMALL,), F32)
    torch.set_num_threads(2)
    several = Engine.current()
    assert made(several, lambda x: [x + 1], [row], [row])[1] is None
