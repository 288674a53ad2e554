"""The engine: programs in the calling thread, operands at addresses, numbers, and what is kept on disk."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

from bridge import diskcache
from bridge.diagnostics import DiagnosticNote
from bridge.engine import CallsBack, Engine, JaxEngine, Number, Window, share_with_torch


def aval(*shape, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.fixture
def engine():
    return Engine.current()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def double():
    return Engine.current().compile(lambda x: [x * 2], [aval(16)])


def test_both_numbers_of_threads_have_an_engine():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = Engine.current()
        torch.set_num_threads(2)
        two = Engine.current()
    finally:
        torch.set_num_threads(before)
    assert one.serial and not two.serial and one is not two


def test_64_bits_survive_without_x64(engine):
    t = torch.tensor([2**40 + 5, -7] * 8)
    program = engine.compile(lambda x: [x + 1], [aval(16, dtype=np.int64)])
    (out,) = program([engine.share(t)])
    assert torch.equal(share_with_torch(out), t + 1)


def test_a_window_follows_the_memory(engine, double):
    window = Window(engine, torch.float32, (16,))

    def run(t):
        pointer = t.data_ptr()
        array = window.cache.get(pointer)
        return share_with_torch(double([window(pointer, t) if array is None else array])[0])

    t = torch.randn(16)
    for _ in range(3):
        torch.testing.assert_close(run(t), t * 2)
    assert len(window.cache) == 1
    t.mul_(3)  # seen: the array is over the tensor's own memory
    torch.testing.assert_close(run(t), t * 2)
    t.set_(torch.randn(16).untyped_storage(), 0, (16,), (1,))
    torch.testing.assert_close(run(t), t * 2)
    t.data = torch.randn(16)
    torch.testing.assert_close(run(t), t * 2)


def test_addresses_are_reused_by_other_tensors(engine, double):
    window = Window(engine, torch.float32, (16,))
    for i in range(2000):  # more than are remembered; freed memory comes back for the next tensor
        t = torch.full((16,), float(i))
        pointer = t.data_ptr()
        array = window.cache.get(pointer)
        out = share_with_torch(double([window(pointer, t) if array is None else array])[0])
        assert out[0] == 2 * i
    assert len(window.cache) <= 256


def test_unaligned_memory_is_copied_each_time(engine, double):
    window, base = Window(engine, torch.float32, (16,)), torch.randn(64)
    for _ in range(3):
        part = base[1:17]
        torch.testing.assert_close(share_with_torch(double([window(part.data_ptr(), part)])[0]), part * 2)
        base.add_(1)
    assert not window.cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int8, torch.int64])
def test_small_operands_are_copied_while_their_address_is_new(engine, dtype):
    window = Window(engine, dtype, (5, 3))
    assert window.small and not Window(engine, torch.float32, (1 << 14,)).small
    program = engine.compile(lambda x: [x], [aval(5, 3, dtype=jax.numpy.dtype(str(dtype).removeprefix("torch.")))])
    base = (torch.arange(64) % 5).to(dtype)
    first, odd = (base[at : at + 15].view(5, 3) for at in (0, 1))
    cells = [window.take(first.data_ptr()), window.take(odd.data_ptr())]  # two at a time, as two threads would
    outs = [share_with_torch(program([cell[0]])[0]) for cell in cells]
    for cell in cells:
        window.give(cell)
    base.zero_()
    again = window.take(odd.data_ptr())  # unaligned memory is copied each time
    assert torch.equal(share_with_torch(program([again[0]])[0]), odd)
    assert window.take(first.data_ptr()) is None and not window.cache  # an address that comes back is imported
    want = (torch.arange(64) % 5).to(dtype)
    assert torch.equal(outs[0], want[:15].view(5, 3)) and torch.equal(outs[1], want[1:16].view(5, 3))


def test_numbers(engine):
    for dtype, value in [
        ("float32", 1.5),
        ("int32", -7),
        ("int64", -(2**40)),
        ("uint64", 2**63 + 1),
        ("float64", 1e300),
    ]:
        number = Number(engine, dtype)
        program = engine.compile(lambda x: [x + 0], [aval(1, dtype=np.dtype(dtype))])
        first = number.take(value)
        second = number.take(value)  # another thread's
        assert np.asarray(share_with_torch(program([first[0]])[0]).numpy())[0] == value
        number.give(first)
        number.give(second)
    assert share_with_torch(
        engine.compile(lambda x: [x + 0], [aval(1)])([Number(engine, "float32").take(1e300)[0]])[0]
    ) == float("inf")


def test_a_number_of_a_dtype_that_c_has_not(engine):
    number = Number(engine, "bfloat16")
    program = engine.compile(lambda x: [x + 0], [aval(1, dtype=jax.numpy.bfloat16)])
    assert share_with_torch(program([number.take(1.5)[0]])[0]) == 1.5


def test_a_program_that_calls_back_runs_on_jax(engine, capfd):
    def shout(x):
        jax.debug.print("{}", x[0])
        return [x + 1]

    with pytest.raises(CallsBack):
        engine.compile(shout, [aval(16)])
    hosted = JaxEngine()
    out = share_with_torch(hosted.compile(shout, [aval(16)])([hosted.share(torch.full((16,), 7.0))])[0])
    jax.effects_barrier()
    assert out[0] == 8 and "7.0" in capfd.readouterr().out


def test_threads_run_one_program(engine, double):
    window = Window(engine, torch.float32, (16,))

    def work(i):
        for k in range(100):
            t = torch.full((16,), float(100 * i + k))
            array = window.cache.get(t.data_ptr())
            out = share_with_torch(double([window(t.data_ptr(), t) if array is None else array])[0])
            if out[0] != 2 * (100 * i + k):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


# -- on disk


def program_of(engine, calls, text="f"):
    def f(x):
        calls.append(1)
        return [x * 3]

    program = engine.compile(f, [aval(16)], text)
    t = torch.randn(16)
    torch.testing.assert_close(share_with_torch(program([engine.share(t)])[0]), t * 3)


def test_a_kept_program_is_not_traced(engine, cache):
    calls = []
    program_of(engine, calls)
    program_of(engine, calls)
    assert calls == [1]
    program_of(engine, calls, "another text")
    with jax.default_matmul_precision("float32"):  # a setting that decides what is traced
        program_of(engine, calls)
    assert calls == [1, 1, 1]
    assert len(list((cache / "programs").iterdir())) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "stale"])
def test_a_broken_file_is_made_anew(engine, cache, damage):
    calls = []
    program_of(engine, calls)
    (file,) = (cache / "programs").iterdir()
    good = file.read_bytes()
    if damage == "stale":  # whole, but not what this build of jax wrote
        key = file.name
        file.unlink()
        diskcache.put("programs", "anything", b"not a program")
        (wrong,) = (cache / "programs").iterdir()
        wrong.rename(cache / "programs" / key)
    else:
        bad = {"cut": good[:-10], "flipped": good[:-1] + bytes([good[-1] ^ 1]), "empty": b"", "foreign": b"#!" * 99}
        file.write_bytes(bad[damage])
    program_of(engine, calls)
    assert calls == [1, 1]
    (file,) = (cache / "programs").iterdir()
    assert diskcache._MAGIC in file.read_bytes()
    program_of(engine, calls)
    assert calls == [1, 1]


def test_off(engine, cache, monkeypatch):
    monkeypatch.setenv("TORCH_PALLAS_CACHE", "0")
    calls = []
    program_of(engine, calls)
    program_of(engine, calls)
    assert calls == [1, 1] and not cache.exists()


def test_a_folder_that_cannot_be_written_is_a_note(engine, monkeypatch):
    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", "/dev/null/programs")
    calls = []
    with pytest.warns(DiagnosticNote, match="TPB116"):
        program_of(engine, calls)
    assert calls == [1]


def test_a_home_that_cannot_be_written_is_not(engine, monkeypatch):
    monkeypatch.delenv("TORCH_PALLAS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    program_of(engine, [])


def test_the_folder_stays_within_its_bound(cache, monkeypatch):
    monkeypatch.setenv("TORCH_PALLAS_CACHE_MB", "0.2")
    monkeypatch.setattr(diskcache, "_written", 1)
    for i in range(diskcache._EVERY + 1):
        diskcache.put("things", str(i), os.urandom(10_000))
        os.utime(diskcache._path("things", str(i)), (i, i))
    kept = [i for i in range(diskcache._EVERY + 1) if diskcache.get("things", str(i)) is not None]
    assert sum(f.stat().st_size for f in cache.glob("*/*")) <= 0.2 * 2**20
    assert kept == list(range(kept[0], diskcache._EVERY + 1)), "the oldest go first"


def test_many_write_and_read_one_key(cache):
    values = [bytes([i]) * 100_000 for i in range(8)]
    wrong = []

    def work(value):
        for _ in range(20):
            diskcache.put("things", "one", value)
            if diskcache.get("things", "one") not in values:
                wrong.append(value[0])

    threads = [threading.Thread(target=work, args=(v,)) for v in values]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert [f.name for f in (cache / "things").iterdir()] == [diskcache._path("things", "one").name]


KERNEL = """
import sys

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat import compiled

traced = []
load = compiled.load_source
compiled.load_source = lambda *a: traced.append(1) or load(*a)


@triton.jit
def axpy(out, x, y, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, a * tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


x, y, out = torch.randn(100), torch.randn(100), torch.zeros(100)
axpy[(2,)](out, x, y, 3.0, 90, BLOCK=64)
torch.testing.assert_close(out[:90], 3 * x[:90] + y[:90])
assert not out[90:].any()
print(len(traced))
"""


def test_another_process_finds_the_program(cache, tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    root = str(Path(__file__).parents[2])

    def run():
        done = subprocess.run(
            [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert run() == 1
    assert run() == 0, "nothing was traced"
    for file in cache.glob("*/*"):
        file.write_bytes(b"garbage")
    assert run() == 1
    assert run() == 0
