"""autotune chooses by measuring and leaves nothing behind; heuristics compute; hooks run when Triton runs them."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import knobs, testing
from frontend_triton_compat.autotune import is_tuning
from frontend_triton_compat.measure import copy_arguments


def accumulate(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(o + i, mask=i < n) + tl.load(x + i, mask=i < n), mask=i < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


CONFIGS = [triton.Config({"BLOCK": b}) for b in (32, 64, 128)]


def tuned(**options):
    options = {"configs": CONFIGS, "key": ["n"], **options}
    return triton.autotune(**options)(triton.jit(accumulate))


def slow_unless(block, timed=None):
    """A do_bench that really runs, and then reports a time that makes one configuration the fastest."""

    def bench(fn, quantiles):
        fn()
        seconds = next(times)
        if timed is not None:
            timed.append(seconds)
        return [seconds] * len(quantiles)

    times = iter([0.001 if c.kwargs["BLOCK"] == block else 1.0 for c in CONFIGS] * 10)
    return bench


def xo(n=200):
    return torch.arange(float(n)), torch.full((n,), 5.0)


def test_tuning_leaves_nothing_behind():
    kernel = tuned()
    x, o = xo()
    kernel[grid](x, o, 200)
    assert torch.equal(o, x + 5)
    kernel[grid](x, o, 200)
    assert torch.equal(o, 2 * x + 5)
    assert kernel.best_config in CONFIGS and len(kernel.cache) == 1


@pytest.mark.parametrize("block", [32, 64, 128])
def test_the_fastest_is_chosen(block):
    kernel = tuned(do_bench=slow_unless(block))
    x, o = xo()
    kernel[grid](x, o, 200)
    assert kernel.best_config.kwargs == {"BLOCK": block}
    assert torch.equal(o, x + 5)


def test_our_own_clock_tells_slow_from_fast():
    # The hook is part of what is measured, as in Triton.
    configs = [
        triton.Config({"BLOCK": b}, pre_hook=lambda args, b=b: time.sleep(0.05 * (b != 64))) for b in (32, 64, 128)
    ]
    kernel = tuned(configs=configs)
    x, o = xo()
    kernel[grid](x, o, 200)
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    timings = {c.kwargs["BLOCK"]: t[0] for c, t in kernel.configs_timings.items()}
    assert timings[32] > 0.05 > timings[64] and timings[128] > 0.05


def test_a_new_key_or_dtype_measures_anew_and_an_old_one_does_not():
    timed: list = []
    kernel = tuned(do_bench=slow_unless(64, timed))
    for n, dtype, expected in [
        (200, torch.float32, 3),
        (200, torch.float32, 3),
        (100, torch.float32, 6),
        (200, torch.float64, 9),
        (100, torch.float32, 9),
    ]:
        x = torch.arange(n, dtype=dtype)
        kernel[grid](x, torch.zeros(n, dtype=dtype), n)
        assert len(timed) == expected


def test_key_by_keyword_and_by_position_is_one():
    timed: list = []
    kernel = tuned(do_bench=slow_unless(64, timed))
    x, o = xo()
    kernel[grid](x, o, 200)
    kernel[grid](o=o, n=200, x=x)
    assert len(timed) == 3 and torch.equal(o, 2 * x + 5)


def test_views_and_overlaps_are_kept_while_tuning():
    kernel = tuned()
    whole = torch.arange(400.0)
    x, o = whole[:200], whole[100:300]  # overlapping: what is stored is read again by later programs
    copies = copy_arguments({"x": x, "o": o, "n": 200})
    copies["o"][0] = -1.0
    assert copies["x"][100] == -1.0 and whole[100] == 100.0
    before = whole.clone()
    kernel[grid](before[300:], before[300:], 100)
    assert torch.equal(before[300:], 2 * whole[300:])


def test_reset_to_zero_is_for_tuning_as_in_triton():
    kernel = tuned(reset_to_zero=["o"])
    x, o = xo()
    kernel[grid](x, o, 200)  # measured: zeroed once before the launch
    assert torch.equal(o, x)
    kernel[grid](x, o, 200)  # not measured
    assert torch.equal(o, 2 * x)


def test_hooks_see_copies_while_tuning_and_the_arguments_afterwards():
    calls: list = []

    def pre(args, reset_only=False):
        calls.append(("pre", is_tuning(), reset_only, args["o"] is o, args["BLOCK"]))

    def post(args, exception):
        calls.append(("post", is_tuning(), exception, args["o"] is o, args["BLOCK"]))

    kernel = tuned(pre_hook=pre, post_hook=post, do_bench=slow_unless(64))
    x, o = xo()
    kernel[grid](x, o, 200)
    assert [c for c in calls if c[0] == "pre" and c[2]] == [("pre", False, True, True, 64)]
    inside = [c for c in calls if c[1]]
    assert inside and not any(c[3] for c in inside)
    assert {c[4] for c in inside} == {32, 64, 128}
    count = len(calls)
    kernel[grid](x, o, 200)
    assert len(calls) == count


def test_a_configurations_hook_runs_before_every_launch():
    seen: list = []
    configs = [triton.Config({"BLOCK": 64}, pre_hook=lambda args: seen.append((args["BLOCK"], args["n"])))]
    kernel = tuned(configs=configs)
    x, o = xo()
    kernel[grid](x, o, 200)
    kernel[grid](x, o, n=200)
    assert seen == [(64, 200), (64, 200)]


def test_pruning():
    asked: list = []

    def early(configs, named, **kwargs):
        asked.append((dict(named), kwargs))
        return [c for c in configs if c.kwargs["BLOCK"] > 32]

    kernel = tuned(prune_configs_by={"early_config_prune": early}, do_bench=slow_unless(32))
    x, o = xo()
    kernel[grid](x, o, n=200)
    assert set(asked[0][0]) == {"x", "o"} and asked[0][1]["n"] == 200
    assert {c.kwargs["BLOCK"] for c in kernel.configs_timings} == {64, 128}


@pytest.mark.parametrize("top_k", [1, 0.34])
def test_performance_model(top_k):
    def model(x, o, n, BLOCK, num_warps, **options):
        return abs(BLOCK - 64)

    kernel = tuned(prune_configs_by={"perf_model": model, "top_k": top_k})
    x, o = xo()
    kernel[grid](x, o, 200)
    assert kernel.best_config.kwargs == {"BLOCK": 64} and torch.equal(o, x + 5)


def test_pruning_everything_is_refused():
    kernel = tuned(prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: []})
    x, o = xo()
    with pytest.raises(Diagnostic, match="TPB250"):
        kernel[grid](x, o, 200)
    assert torch.equal(o, torch.full((200,), 5.0))


def test_a_configuration_that_can_not_run_is_no_choice():
    configs = [triton.Config({"BLOCK": 48}), triton.Config({"BLOCK": 64})]  # 48 is no power of two
    kernel = tuned(configs=configs)
    x, o = xo()
    kernel[grid](x, o, 200)
    assert kernel.best_config.kwargs == {"BLOCK": 64} and torch.equal(o, x + 5)


def test_when_none_can_run_each_says_why():
    kernel = tuned(configs=[triton.Config({"BLOCK": 48}), triton.Config({"BLOCK": 24})])
    x, o = xo()
    with pytest.raises(Diagnostic) as caught:
        kernel[grid](x, o, 200)
    assert caught.value.code == "TPB274" and caught.value.where.file == __file__ and caught.value.do
    assert all(f"{{'BLOCK': {b}}}: TPB209" in caught.value.why for b in (48, 24))
    assert torch.equal(o, torch.full((200,), 5.0)) and not kernel.cache


def test_a_reason_that_configurations_share_is_raised_as_it_is():
    @triton.jit
    def broken(o, n, BLOCK: tl.constexpr):
        tl.store(o + tl.arange(0, BLOCK), nowhere)  # noqa: F821

    kernel = triton.autotune(configs=CONFIGS, key=["n"])(broken)
    with pytest.raises(Diagnostic, match="TPB204"):
        kernel[(1,)](torch.zeros(128), 128)


@pytest.mark.parametrize("call", [lambda k, x, o: k[grid](x, o, 200, BLOCK=64), lambda k, x, o: k[grid](x, o, 200, 64)])
def test_a_tuned_constexpr_is_not_the_callers(call):
    x, o = xo()
    with pytest.raises(Diagnostic) as caught:
        call(tuned(), x, o)
    assert caught.value.code == "TPB250" and "'BLOCK'" in caught.value.what and caught.value.do
    assert torch.equal(o, torch.full((200,), 5.0))


@pytest.mark.parametrize("bad", ["too many", "missing", "unknown"])
def test_bad_arguments_through_the_wrapper(bad):
    x, o = xo()
    launch = {
        "too many": lambda k: k[(1,)](x, o, 200, 1, 2, 3),
        "missing": lambda k: k[(1,)](x, o),
        "unknown": lambda k: k[(1,)](x, o, 200, typo=1),
    }[bad]
    with pytest.raises(Diagnostic, match="TPB250"):
        launch(tuned())
    assert torch.equal(o, torch.full((200,), 5.0))


def test_called_like_a_function():
    with pytest.raises(Diagnostic, match="TPB213"):
        tuned()(1, 2, 3)


def test_nothing_is_measured_where_there_is_nothing_to_choose():
    def bench(fn, quantiles):
        raise AssertionError("measured")

    pruned = {"early_config_prune": lambda configs, named, **kwargs: [configs[1]]}
    for options in (
        {"prune_configs_by": pruned},
        {"configs": [triton.Config({"BLOCK": 64}, num_warps=w) for w in (1, 2)]},
    ):
        kernel = tuned(do_bench=bench, **options)
        x, o = xo()
        kernel[grid](x, o, 200)
        assert torch.equal(o, x + 5) and kernel.best_config.kwargs == {"BLOCK": 64}


def test_a_wrapper_that_is_no_kernel_of_ours():
    launched: list = []
    estimated: list = []

    class Kernel:
        fn = staticmethod(accumulate)

        def run(self, **kwargs):
            launched.append(kwargs["BLOCK"])

    def bench(fn, quantiles):
        fn()
        return [launched[-1]] * 3

    kernel = triton.runtime.Autotuner(
        Kernel(), [], [triton.Config({"BLOCK": b}) for b in range(1, 11)], [], None, None, do_bench=bench,
        prune_configs_by={
            "early_config_prune": lambda configs, named, **kwargs: configs[:6],
            "perf_model": lambda **kwargs: estimated.append(kwargs["BLOCK"]) or kwargs["BLOCK"],
            "top_k": 0.5,
        },
    )  # fmt: skip
    kernel.run()
    assert estimated == [1, 2, 3, 4, 5, 6] and sorted(set(launched)) == [1, 2, 3] and launched[-1] == 1


def test_measuring_for_so_many_milliseconds():
    kernel = tuned(warmup=1, rep=2, use_cuda_graph=True)
    x, o = xo()
    kernel[grid](x, o, 200)
    assert all(len(t) == 3 for t in kernel.configs_timings.values()) and kernel.bench_time > 0
    assert kernel.nargs is None


def test_a_hook_that_fails_is_not_a_configuration_that_can_not_run():
    def pre(args):
        raise ValueError("of the hook")

    kernel = tuned(configs=[triton.Config({"BLOCK": b}, pre_hook=pre) for b in (32, 64)])
    with pytest.raises(ValueError, match="of the hook"):
        kernel[grid](*xo(), 200)


@pytest.mark.parametrize("asked", ["argument", "variable", "knob"])
def test_choices_are_kept_on_disk(asked, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCH_PALLAS_CACHE", "1")
    if asked == "variable":
        monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    timed: list = []

    def make(configs=CONFIGS, fn=accumulate):
        options = {"cache_results": True} if asked == "argument" else {}
        return triton.autotune(configs, ["n"], do_bench=slow_unless(64, timed), **options)(triton.jit(fn))

    with knobs.autotuning.scope():
        knobs.autotuning.print = True
        if asked == "knob":
            knobs.autotuning.cache = True
        x, o = xo()
        first = make()
        first[grid](x, o, 200)
        assert len(timed) == 3 and "best config selected: BLOCK: 64, num_warps: 4" in capsys.readouterr().out
        again = make()
        again[grid](x, o, 200)
        assert len(timed) == 3 and again.best_config == first.best_config and torch.equal(o, 2 * x + 5)
        assert list(again.configs_timings.values()) == list(first.configs_timings.values())
        assert "selected" not in capsys.readouterr().out
        again[grid](x[:100], o, 100)  # another key
        assert len(timed) == 6
        make(CONFIGS[:2])[grid](x, o, 200)  # other configurations
        assert len(timed) == 8
        make(fn=accumulate_more)[grid](x, o, 200)  # another kernel
        assert len(timed) == 11
        for file in tmp_path.glob("autotune/*"):
            file.write_bytes(b"broken")
        make()[grid](x, o, 200)
        assert len(timed) == 14


def accumulate_more(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(o + i, mask=i < n) + 2 * tl.load(x + i, mask=i < n), mask=i < n)


def test_without_being_asked_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", str(tmp_path))
    kernel = tuned()
    kernel[grid](*xo(), 200)
    assert not list(tmp_path.glob("autotune/*"))


def test_warmup_compiles_every_configuration():
    handles = tuned().warmup(torch.float32, torch.float32, 200, grid=(1,))
    assert [h.src.constants[3,] for h in handles] == [32, 64, 128]


def test_a_configuration_as_text_and_by_pickle():
    import pickle

    config = triton.Config({"BLOCK": 32}, num_warps=8, maxnreg=128)
    assert str(config) == "BLOCK: 32, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: 128, ir_override: None"
    assert pickle.loads(pickle.dumps(config)) == config


# -- heuristics, and both


def test_heuristics_see_the_arguments_and_each_other():
    kernel = triton.heuristics(
        {"BLOCK": lambda args: triton.next_power_of_2(args["n"]), "EVEN": lambda args: args["n"] % args["BLOCK"] == 0}
    )(triton.jit(even_or_not))
    for n in (64, 50):
        o = torch.zeros(1, dtype=torch.int32)
        kernel[(1,)](o, n)
        assert o.item() == (1 if n == 64 else 0)


def even_or_not(o, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.store(o, 1 if EVEN else 0)


def ragged(x, o, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(o + i, tl.load(x + i) * 2)
    else:
        tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@pytest.mark.parametrize("outer", ["autotune", "heuristics"])
@pytest.mark.parametrize("n", [256, 200])
def test_both_in_either_order(outer, n):
    tune = triton.autotune(configs=CONFIGS, key=["n"])
    # Only a heuristic below autotune sees the tuned constexpr.
    even = triton.heuristics({"EVEN": lambda a: a["n"] % (a["BLOCK"] if outer == "autotune" else 128) == 0})
    kernel = tune(even(triton.jit(ragged))) if outer == "autotune" else even(tune(triton.jit(ragged)))
    x, o = xo(n)
    kernel[grid](x, o, n)
    assert torch.equal(o, 2 * x)
    assert kernel.base_fn is ragged and kernel.arg_names == ["x", "o", "n", "BLOCK", "EVEN"]


# -- jax


def test_jax_arrays():
    kernel = tuned(do_bench=slow_unless(64))
    new = kernel[grid](jnp.arange(200.0), jnp.full(200, 5.0), 200)
    np.testing.assert_array_equal(new, np.arange(200) + 5)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_inside_jax_jit_nothing_is_measured():
    kernel = tuned()
    f = jax.jit(lambda x: kernel[grid](x, jnp.zeros_like(x), 200))
    np.testing.assert_array_equal(f(jnp.arange(200.0)), np.arange(200))
    assert not kernel.cache


# -- asking without launching


def test_source_uses_the_choice_of_an_earlier_launch():
    kernel = tuned(do_bench=slow_unless(128))
    x, o = xo()
    assert "pallas_call" in kernel[grid].source(x, o, 200)
    kernel[grid](x, o, 200)
    chosen = kernel[grid].source(x, o, 200)
    assert chosen == triton.jit(accumulate)[(2,)].source(x, o, 200, BLOCK=128)


# -- kernels of the genuine package


def test_retarget_keeps_configurations_pruning_and_heuristics():
    genuine = pytest.importorskip("triton")
    configs = [genuine.Config({"BLOCK": b}) for b in (32, 64, 128)]
    prune = {"early_config_prune": lambda configs, named, **kwargs: [c for c in configs if c.kwargs["BLOCK"] == 64]}
    tune = genuine.autotune(configs=configs, key=["n"], prune_configs_by=prune)
    even = genuine.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    kernel = triton.retarget(tune(even(genuine.jit(ragged))))
    assert triton.retarget(kernel) is kernel
    x, o = xo()
    kernel[grid](x, o, 200)
    assert torch.equal(o, 2 * x) and kernel.best_config.kwargs == {"BLOCK": 64}
    with pytest.raises(Diagnostic, match="TPB003"):
        triton.retarget(len)


# -- testing


def test_do_bench_measures_milliseconds():
    ms = testing.do_bench(lambda: time.sleep(0.004), warmup=1, rep=20)
    assert 4 <= ms < 40
    low, mid = testing.do_bench(lambda: time.sleep(0.002), warmup=1, rep=10, quantiles=[0.0, 0.5])
    assert 2 <= low <= mid < 40
    assert isinstance(testing.do_bench(lambda: None, rep=1, quantiles=[0.5]), float)
    times = testing.do_bench(lambda: time.sleep(0.001), warmup=1, rep=5, return_mode="all")
    assert len(times) >= 1 and all(t >= 1 for t in times)
    least, most = (testing.do_bench(lambda: None, rep=1, return_mode=m) for m in ("min", "max"))
    assert 0 <= least and 0 <= most


def test_do_bench_drops_gradients():
    w = torch.ones(3, requires_grad=True)
    testing.do_bench(lambda: w.sum().backward(), warmup=0, rep=1, grad_to_none=[w])
    assert torch.equal(w.grad, torch.ones(3))


@pytest.mark.parametrize("options", [{"return_mode": "mode"}, {"quantiles": [0.5, 2]}])
def test_do_bench_refuses(options):
    with pytest.raises(Diagnostic, match="TPB003") as caught:
        testing.do_bench(lambda: None, **options)
    assert caught.value.where.file == __file__


def test_assert_close():
    testing.assert_close(torch.tensor([1.0, float("nan")]), [1.005, float("nan")])
    testing.assert_close(torch.ones(2, dtype=torch.bfloat16), torch.ones(2), atol=0, rtol=lambda dtype: 1e-3)
    with pytest.raises(AssertionError, match="here"):
        testing.assert_close(torch.ones(2), torch.ones(2) * 1.1, err_msg="here")
    with pytest.raises(AssertionError):
        testing.assert_close(torch.ones(1), torch.zeros(1), atol=0.5)


def test_perf_report_prints_and_returns_a_table(capsys, tmp_path):
    bench = testing.Benchmark(["n"], [1, 20], "who", ["a", "b"], ["ours", "theirs"], "times", {"k": 2})
    mark = testing.perf_report(bench)(lambda n, who, k: (n * k if who == "a" else float(n), 0, 0))
    table = mark.run(print_data=True, return_df=True, save_path=str(tmp_path))
    assert table == {"n": [1, 20], "ours": [2, 40], "theirs": [1.0, 20.0]}
    assert capsys.readouterr().out.splitlines() == [
        "times:",
        " n  ours  theirs",
        " 1     2       1",
        "20    40      20",
    ]
    assert (tmp_path / "times.csv").read_text().splitlines() == ["n,ours,theirs", "1,2,1.000000", "20,40,20.000000"]
    assert mark.run() is None
    assert mark.run(return_df=True, diff_col=True)["Diff"] == [-1.0, -20.0]


def test_perf_report_gives_data_frames_where_pandas_is(monkeypatch):
    import sys
    import types

    pandas = types.ModuleType("pandas")
    pandas.DataFrame = lambda table: ("frame", table)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    bench = testing.Benchmark(["m", "n"], [(1, 2)], "who", [3], ["ours"], "", {}, ylabel="GB/s")
    mark = testing.perf_report([bench])(lambda m, n, who: m + n + who)
    assert mark.run(return_df=True) == [("frame", {"m": [1], "n": [2], "ours (GB/s)": [6]})]


def test_a_librarys_own_tuner_derives_from_ours():
    class Tuner(triton.runtime.Autotuner):
        """Chooses the last configuration that runs, and keeps what it measured."""

        def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs):
            super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs)
            self.seen = {}

        def run(self, *args, **kwargs):
            self.nargs = dict(zip(self.arg_names, args))
            for config in self.prune_configs(kwargs):
                self.seen[config.kwargs["BLOCK"]] = tuple(self._bench(*args, config=config, **kwargs))
            self.best_config = self.configs[-1]
            return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())

    kernel = triton.jit(accumulate)
    tuner = Tuner(kernel, kernel.arg_names, CONFIGS, ["n"], ["o"], None, pre_hook=None, cache_results=True)
    x, o = xo()
    tuner[grid](x, o, 200)
    torch.testing.assert_close(o, x + 5)
    assert set(tuner.seen) == {c.kwargs["BLOCK"] for c in CONFIGS}
    assert all(len(t) == 3 and t[0] > 0 for t in tuner.seen.values())
    assert not tuner.user_defined_pre_hook and tuner.reset_to_zero == ["o"]


def test_a_choice_may_be_put_in_the_cache():
    kernel = tuned()
    x, o = xo()
    kernel.cache[(200, str(x.dtype), str(o.dtype))] = CONFIGS[1]
    kernel[grid](x, o, 200)
    assert kernel.best_config is CONFIGS[1] and not kernel.configs_timings


def test_a_librarys_own_wrapper_derives_from_kernel_interface():
    class Entry(triton.KernelInterface):
        def __init__(self, fn):
            self.fn, self.grids = fn, []

        def run(self, *args, **kwargs):
            self.grids.append(kwargs["grid"])
            return self.fn.run(*args, **kwargs)

    entry = Entry(triton.jit(accumulate))
    x, o = xo()
    entry[(4,)](x, o, 200, BLOCK=64)
    torch.testing.assert_close(o, x + 5)
    assert entry.grids == [(4,)]


@pytest.mark.parametrize("wrapped", ["kernel", "heuristic", "library"])
def test_configurations_with_one_code_are_measured_once(wrapped):
    class Entry(triton.KernelInterface):
        def __init__(self, fn):
            self.fn, self.arg_names = fn, fn.arg_names

        def run(self, *args, **kwargs):
            return self.fn.run(*args, **kwargs)

    def looks_at_warps(args):
        return args["num_warps"] * 16

    configs = [
        triton.Config({"BLOCK": b} if wrapped != "heuristic" else {}, num_warps=w) for b in (32, 64) for w in (2, 4)
    ]
    kernel = triton.jit(accumulate)
    inner = {"kernel": kernel, "heuristic": None, "library": Entry(kernel)}[wrapped]
    inner = inner or triton.heuristics({"BLOCK": looks_at_warps})(kernel)
    benched = []
    tuner = triton.autotune(configs, key=["n"], do_bench=lambda fn, quantiles: benched.append(fn()) or [1.0] * 3)(inner)
    x, o = xo()
    tuner[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, o, 200)
    assert torch.equal(o, x + 5)
    assert len(benched) == {"kernel": 2, "heuristic": 2, "library": 4}[wrapped]
    assert set(tuner.configs_timings) == set(configs)


def test_the_first_configuration_on_request(monkeypatch):
    monkeypatch.setenv("TORCH_PALLAS_AUTOTUNE", "first")
    early = {"early_config_prune": lambda configs, named, **kwargs: configs[1:]}
    kernel = tuned(do_bench=lambda fn, quantiles: pytest.fail("it measures"), prune_configs_by=early)
    x, o = xo()
    kernel[grid](x, o, 200)
    assert torch.equal(o, x + 5) and kernel.best_config is CONFIGS[1]
