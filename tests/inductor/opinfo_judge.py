"""One sample of PyTorch's OpInfo database, compiled with backend="pallas" and judged against eager.

Input: an operator, a dtype, a sample. Output: a record with a verdict. Law: results are judged by the wider of
torch.testing's tolerance and the OpInfo's own, and by a float64 run where both are off; a record says when the plain
tolerance was not met, whatever the verdict. Samples of a group are compiled as one function and judged one by one; a
group where anything is not equal is taken apart, and the verdict is that of the single run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from typing import Any

#: Verdicts that count as right: same values, or the same refusal.
GOOD = ("equal", "refused")
#: Dtypes whose gradients are compared.
DIFFERENTIABLE = ("float32", "bfloat16", "float16", "float64", "complex64")
#: Their values are whatever the memory held.
UNINITIALISED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip


def databases() -> list[Any]:
    """Every OpInfo, in the database's order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


def supports(op: Any, dtype: str) -> bool:
    """Whether the OpInfo lists a dtype for the CPU."""
    import torch

    return getattr(torch, dtype) in op.supported_dtypes("cpu")


def name_of(op: Any) -> str:
    """``nn.functional.pad.reflect``: the name and the variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def spread(count: int, limit: int) -> list[int]:
    """`limit` of so many samples, evenly spread; all of them for 0."""
    if not limit or limit >= count:
        return list(range(count))
    return sorted({round(i * (count - 1) / max(limit - 1, 1)) for i in range(limit)})


class Judge:
    """Runs the samples of one worker process."""

    def __init__(self) -> None:
        import torch

        import inductor_backend  # noqa: F401  (registers the backend)

        torch.set_num_threads(1)
        self.torch = torch
        self.ops = {name_of(op): op for op in databases()}

    def samples(self, name: str, dtype: str, limit: int, grads: bool) -> tuple[list[Any], list[int]]:
        """All samples of an operator, and which of them are judged: `limit` of them, evenly spread."""
        torch, op = self.torch, self.ops[name]
        torch.manual_seed(0)
        made = list(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=grads))
        return made, spread(len(made), limit)

    def refused(self, name: str, limit: int) -> tuple[list[Any], list[int]]:
        """The OpInfo's inputs that eager refuses, and which of them are judged."""
        op = self.ops[name]
        made = [e.sample_input for e in op.error_inputs("cpu")] if op.error_inputs_func is not None else []
        return made, spread(len(made), limit)

    def judge(self, name: str, dtype: str, sample: Any, grads: bool, dynamic: bool | None) -> dict[str, Any]:
        """The record of one sample, compiled on its own."""
        reference, refusal, random = self.expected(name, sample, grads)
        record: dict[str, Any] = {}
        try:
            got = self.compiled(name, [sample], grads, dynamic, random, record)[0]
        except Exception as failure:  # whatever a compiled function raises is the verdict on its sample
            found: Any = failure
            while found is not None and not hasattr(found, "slug"):
                found = found.__cause__ or found.__context__
            if refusal is not None:
                record["verdict"] = "refused"
            else:
                record["verdict"] = "raw-error" if found is None else "coded"
                record["code"] = "" if found is None else found.code
                record["detail"] = f"{type(failure).__name__}: {failure}"[-600:]
            return record
        if refusal is not None:
            record.update(verdict="differs", detail=f"eager refuses ({refusal}), the compiled function answers"[:600])
            return record
        record.update(self.compare(name, dtype, sample, grads, reference, got))
        if random:
            record["random"] = True
        return record

    def judge_group(
        self, name: str, dtype: str, samples: list[Any], grads: bool, dynamic: bool | None
    ) -> list[dict[str, Any] | None]:
        """The records of samples that are compiled as one function; None for a sample that has to be judged alone."""
        records: list[dict[str, Any] | None] = [None] * len(samples)
        wanted = [self.expected(name, s, grads) for s in samples]
        chosen = [i for i, (_, refusal, random) in enumerate(wanted) if refusal is None and not random]
        if len(chosen) < 2:
            return records
        shared: dict[str, Any] = {}
        try:
            got = self.compiled(name, [samples[i] for i in chosen], grads, dynamic, False, shared)
        except Exception:  # of one of many samples: each is then judged alone, where it is a verdict
            return records
        if any("whole graph" in n for n in shared["notes"]):
            return records
        shared["seconds"] = round(shared["seconds"] / len(chosen), 2)
        for i, results in zip(chosen, got, strict=True):
            verdict = self.compare(name, dtype, samples[i], grads, wanted[i][0], results)
            if verdict["verdict"] == "equal":
                records[i] = {**shared, **verdict, "group": len(chosen)}
        return records

    def expected(self, name: str, sample: Any, grads: bool) -> tuple[Any, Exception | None, bool]:
        """Eager's results, or its refusal, and whether they depend on the random generator's seed."""
        fn = self.ops[name].get_op()
        try:
            reference = self.run(fn, sample, 1, grads)
            again = self.run(fn, sample, 2, grads)
        except Exception as failure:  # whatever eager raises is a refusal, which the compiled function has to share
            return None, failure, False
        random = any(not self.alike(a, b, exact=True) for a, b in zip(reference[0], again[0], strict=True))
        return reference, None, random and name not in UNINITIALISED

    def compiled(
        self, name: str, samples: list[Any], grads: bool, dynamic: bool | None, random: bool, record: dict[str, Any]
    ) -> list[Any]:
        """What the compiled function returns for each sample; notes, graphs and seconds go into `record`."""
        from bridge.diagnostics import errors
        from inductor_backend import compile_count

        torch, fn = self.torch, self.ops[name].get_op()
        call = _straight_line(fn, len(samples))
        torch._dynamo.reset()
        errors._seen.clear()
        started, graphs = time.perf_counter(), compile_count()
        try:
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always")
                compiled = torch.compile(call, backend="pallas", dynamic=dynamic)
                with torch._inductor.config.patch(fallback_random=random):
                    return self.run_all(compiled, samples, 1, grads)
        finally:
            told = [n.message.diagnostic for n in notes if isinstance(n.message, errors.DiagnosticNote)]
            record["notes"] = sorted({f"{d.code} {_brief(d)}" for d in told})
            record["graphs"] = compile_count() - graphs
            record["seconds"] = round(time.perf_counter() - started, 2)

    def run(self, fn: Any, sample: Any, seed: int, grads: bool) -> tuple[list[Any], list[Any], list[Any]]:
        """(results, gradients, the arguments afterwards), from arguments of their own memory."""
        return self.run_all(_straight_line(fn, 1), [sample], seed, grads)[0]

    def run_all(self, call: Any, samples: list[Any], seed: int, grads: bool) -> list[Any]:
        """The same of each sample; `call` takes a list of (input, args, kwargs) and returns a list of results."""
        torch = self.torch
        leaves: list[list[Any]] = []

        def own(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            mine = _own_memory(value)
            if value.requires_grad and value.is_leaf:
                mine.requires_grad_()
            leaves[-1].append(mine)
            return mine

        given = []
        for sample in samples:
            leaves.append([])
            mine = sample.transform(own)
            given.append((mine.input, mine.args, mine.kwargs))
        torch.manual_seed(seed)
        with torch.set_grad_enabled(grads):
            out = call(given)
        outs = [torch.utils._pytree.tree_leaves(o) for o in out]
        grad: list[list[Any]] = [[] for _ in samples]
        if grads:
            tracked = [[o for o in own if isinstance(o, torch.Tensor) and o.requires_grad] for own in outs]
            wanted = [[t for t in own if t.requires_grad and t.is_leaf] for own in leaves]
            usable = [i for i in range(len(samples)) if tracked[i] and wanted[i]]
            roots = [o for i in usable for o in tracked[i]]
            if roots:
                found = iter(
                    torch.autograd.grad(
                        roots, [t for i in usable for t in wanted[i]], [_weights(o) for o in roots], allow_unused=True
                    )
                )
                for i in usable:
                    grad[i] = [next(found) for _ in wanted[i]]
        return [(o, g, [t.detach() for t in own]) for o, g, own in zip(outs, grad, leaves, strict=True)]

    def alike(self, got: Any, want: Any, exact: bool = False, rtol: Any = None, atol: Any = None) -> bool:
        """Whether two results are the same tensor, or the same value."""
        torch = self.torch
        if not isinstance(want, torch.Tensor):
            return type(got) is type(want) and (got == want or got != got)
        if not isinstance(got, torch.Tensor) or got.dtype != want.dtype or got.shape != want.shape:
            return False
        if got.layout != want.layout:
            return False
        with contextlib.suppress(NotImplementedError):
            got, want = got.detach().resolve_conj().resolve_neg(), want.detach().resolve_conj().resolve_neg()
        limits = {"rtol": 0, "atol": 0} if exact else {"rtol": rtol, "atol": atol}
        try:
            torch.testing.assert_close(got, want, equal_nan=True, **limits)
        except AssertionError:
            return False
        return True

    def compare(self, name: str, dtype: str, sample: Any, grads: bool, want: Any, got: Any) -> dict[str, Any]:
        """Values, dtypes, shapes, strides, gradients, and what happened to the arguments."""
        torch = self.torch
        rtol, atol = self.tolerance(name, dtype)
        if len(want[0]) != len(got[0]):
            return {"verdict": "differs", "detail": f"{len(got[0])} results, eager has {len(want[0])}"}
        record: dict[str, Any] = {"verdict": "equal"}
        exact: list[Any] | None = None
        for index, part in enumerate(("result", "gradient", "argument")):
            for i, (g, w) in enumerate(zip(got[index], want[index], strict=True)):
                if name in UNINITIALISED and isinstance(w, torch.Tensor) and part == "result":
                    g, w = torch.empty_like(g, device="meta"), torch.empty_like(w, device="meta")
                    if (g.shape, g.dtype) == (w.shape, w.dtype):
                        continue
                plain = self.alike(g, w)
                if not plain:
                    record["plain"] = f"{part} {i}: {_difference(torch, g, w)}"[:300]
                if plain or self.alike(g, w, rtol=rtol, atol=atol):
                    if part == "result" and isinstance(w, torch.Tensor) and not _same_strides(g, w):
                        record["strides"] = f"{tuple(g.stride())}, eager's {tuple(w.stride())}"
                    continue
                if exact is None:
                    exact = self.in_double(name, sample, grads)
                if exact and i < len(exact[index]) and _nearer(torch, g, w, exact[index][i]):
                    record["rounding"] = True
                    continue
                detail = f"{part} {i}: {_shown(torch, g)} instead of {_shown(torch, w)}; {_difference(torch, g, w)}"
                return {"verdict": "differs", "detail": detail[:900], "part": part}
        return record

    def in_double(self, name: str, sample: Any, grads: bool) -> Any:
        """The same call in float64, or [] when it can't be had."""
        torch = self.torch

        def widen(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.bfloat16, torch.float16):
                return value.detach().double().requires_grad_(value.requires_grad)
            if isinstance(value, torch.Tensor) and value.dtype == torch.complex64:
                return value.detach().to(torch.complex128).requires_grad_(value.requires_grad)
            return (
                torch.float64 if value in (torch.float32, torch.bfloat16) and isinstance(value, torch.dtype) else value
            )

        try:
            return self.run(self.ops[name].get_op(), sample.transform(widen), 1, grads)
        except Exception:  # eager has no float64 for it: nothing to compare with, and no sample is excused by it
            return []

    def tolerance(self, name: str, dtype: str) -> tuple[float | None, float | None]:
        """The wider of torch.testing's tolerance and what the OpInfo allows on a CPU; None for the former."""
        from torch.testing._comparison import default_tolerances
        from torch.testing._internal.common_device_type import toleranceOverride

        torch = self.torch
        dtype = getattr(torch, dtype)
        if not (dtype.is_floating_point or dtype.is_complex):
            return None, None
        rtol, atol = default_tolerances(dtype)
        for info in self.ops[name].decorators:
            inner = getattr(info, "decorators", [info])
            for decorator in inner if isinstance(inner, (list, tuple)) else [inner]:
                if isinstance(decorator, toleranceOverride) and getattr(info, "device_type", None) in (None, "cpu"):
                    wide = decorator.d.get(dtype)
                    if wide is not None:
                        rtol, atol = max(rtol, wide.rtol), max(atol, wide.atol)
        return rtol, atol


def _straight_line(fn: Any, count: int) -> Any:
    """A function that calls `fn` on so many (input, args, kwargs), one after another.

    Without a loop: Dynamo gives up on a whole frame when a graph breaks inside of one.
    """
    lines = [f"    r{i} = fn(given[{i}][0], *given[{i}][1], **given[{i}][2])" for i in range(count)]
    text = "\n".join(["def call(given):", *lines, f"    return [{', '.join(f'r{i}' for i in range(count))}]"])
    scope: dict[str, Any] = {"fn": fn}
    exec(text, scope)
    return scope["call"]


def _brief(diagnostic: Any) -> str:
    """What a note is about, without what differs from sample to sample."""
    what = diagnostic.what.split(" runs in")[0]
    return f"{what}: {diagnostic.why}"[:160] if "whole graph" in diagnostic.why else what


def _own_memory(t: Any) -> Any:
    """A tensor with the same layout in memory of its own."""
    import torch

    if t.layout is not torch.strided or not t.numel():
        return t.detach().clone()
    if t.is_conj() or t.is_neg():
        return t.detach().clone()
    reach = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1
    whole = t.detach().as_strided((t.storage_offset() + reach,), (1,), 0).clone()
    return whole.as_strided(t.shape, t.stride(), t.storage_offset())


def _weights(o: Any) -> Any:
    """What an output's elements count in the loss; no symmetry that could hide a mistake."""
    import torch

    steps = torch.arange(o.numel(), dtype=torch.float64).reshape(o.shape)
    return (0.5 + torch.cos(steps)).to(o.dtype)


def _same_strides(g: Any, w: Any) -> bool:
    if w.layout is not type(w).layout and str(w.layout) != "torch.strided":
        return True
    wide = [d for d in range(w.dim()) if w.shape[d] != 1]
    return w.numel() < 2 or [g.stride(d) for d in wide] == [w.stride(d) for d in wide]


def _nearer(torch: Any, got: Any, want: Any, exact: Any) -> bool:
    """Whether our result is about as near to the exact one as eager's is, or within 4 steps of its largest element."""
    if not all(isinstance(t, torch.Tensor) for t in (got, want, exact)):
        return False
    if got.shape != want.shape or got.dtype != want.dtype or exact.shape != want.shape or not got.numel():
        return False
    if not (want.dtype.is_floating_point or want.dtype.is_complex):
        return False
    step = torch.finfo(want.dtype).eps
    wide = torch.complex128 if want.dtype.is_complex else torch.float64
    got, want, exact = (t.detach().to_dense().to(wide) for t in (got, want, exact))
    if not torch.equal(got.isfinite(), want.isfinite()):
        return False
    sure = want.isfinite() & exact.isfinite()
    if not torch.equal(torch.nan_to_num(got[~sure]), torch.nan_to_num(want[~sure])):
        return False
    if not sure.any():
        return True
    ours, theirs = (got - exact)[sure].abs().max(), (want - exact)[sure].abs().max()
    return bool(ours <= max(2 * theirs, 4 * step * exact[sure].abs().max()))


def _shown(torch: Any, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)[:80]
    return f"{value.dtype} {tuple(value.shape)}".replace("torch.", "")


def _difference(torch: Any, got: Any, want: Any) -> str:
    try:
        torch.testing.assert_close(got, want, equal_nan=True)
    except Exception as failure:
        text = " ".join(str(failure).split())
    else:
        text = ""
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor) and want.shape == got.shape and want.numel():
        off = (
            ~torch.isclose(got.detach(), want.detach(), equal_nan=True)
            if want.layout is torch.strided and got.dtype == want.dtype
            else None
        )
        if off is not None and off.any():
            place = off.nonzero()[0].tolist()
            text = f"at {place}: {got[tuple(place)].item()} for {want[tuple(place)].item()}; {text}"
    return text


def work() -> None:
    """A worker: tasks as JSON lines on stdin, records as JSON lines on stdout."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    judge = Judge()
    tell = lambda record: (out.write(json.dumps(record) + "\n"), out.flush())
    tell({"ready": True})
    for line in sys.stdin:
        task = json.loads(line)
        name, dtype = task["op"], task["dtype"]
        grads = task["grads"] and judge.ops[name].supports_autograd and dtype in DIFFERENTIABLE
        try:
            limit = task["limit"]
            made, chosen = judge.refused(name, limit) if task["errors"] else judge.samples(name, dtype, limit, grads)
            if task["noncontiguous"]:
                made = [s.noncontiguous() for s in made]
        except Exception as failure:  # torch's own generator of samples: recorded, and counted by the sweep
            tell({"sample": -1, "verdict": "skipped", "detail": f"no samples: {failure}"[:300]})
            chosen, made = [], []
        chosen = [i for i in chosen if i >= task["start"] and (not task["only"] or i in task["only"])]
        chosen = [i for i in chosen if i not in task["judged"]]
        group = max(task["group"], 1)
        while chosen:
            size = group if chosen[0] >= task["alone"] else 1
            part, chosen = chosen[:size], chosen[size:]
            records: list[Any] = [None] * len(part)
            if len(part) > 1:
                tell({"begin": part[0], "end": part[-1]})
                records = judge.judge_group(name, dtype, [made[i] for i in part], grads, task["dynamic"])
            apart = any(r is not None for r in records)
            if sum(r["graphs"] > 1 for r in records if r) > 1 or (len(part) > 1 and not apart):
                # Breaks of the graph cost more in a long function, and a group that is taken apart is for nothing.
                group = max(group // 4, 1)
            for i, record in zip(part, records, strict=True):
                if record is None:
                    tell({"begin": i, "end": i})
                    record = judge.judge(name, dtype, made[i], grads, task["dynamic"])
                    if apart:
                        record["apart"] = True
                tell({"sample": i, **record})
        tell({"done": True})


if __name__ == "__main__":
    work()
