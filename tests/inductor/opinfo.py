"""PyTorch's OpInfo samples, compiled with backend="pallas" against eager.

    python tests/inductor/opinfo.py --ops add,sum --dtypes float32,int64 --limit 4 --shard 0/8 --jobs 2 --json out.json

Input: which operators, dtypes and samples. Output: a table of verdicts, and a JSON list with a record a sample. Law:
each sample runs in a worker process with a time limit, so that a crash or a hang is a verdict as well; results are
judged by the wider of torch.testing's tolerance and the OpInfo's own, and by a float64 run where both are off.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

DTYPES = ("float32", "int64", "bfloat16", "bool")
#: Verdicts that count as right: same values, or the same refusal.
GOOD = ("equal", "refused")
VERDICTS = (*GOOD, "differs", "coded", "raw-error", "crash", "time-out", "skipped")
#: Their values are whatever the memory held.
UNINITIALISED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
_RESTART_AFTER = 300


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


# ------------------------------------------------------------------------------------------------------ one sample
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
        """The record of one sample."""
        from bridge.diagnostics import Diagnostic, errors

        torch, op = self.torch, self.ops[name]
        fn = op.get_op()
        record: dict[str, Any] = {}
        reference: Any = None
        refusal: Exception | None = None
        fallback = False
        try:
            reference = self.run(fn, sample, 1, grads)
            again = self.run(fn, sample, 2, grads)
            fallback = any(not self.alike(a, b, exact=True) for a, b in zip(reference[0], again[0], strict=True))
            fallback = fallback and name not in UNINITIALISED
        except Exception as failure:
            refusal = failure
        torch._dynamo.reset()
        errors._seen.clear()
        started = time.perf_counter()
        try:
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always")
                compiled = torch.compile(lambda *a, **k: fn(*a, **k), backend="pallas", dynamic=dynamic)
                with torch._inductor.config.patch(fallback_random=fallback):
                    got = self.run(compiled, sample, 1, grads)
            told = [n.message.diagnostic for n in notes if isinstance(n.message, errors.DiagnosticNote)]
            record["notes"] = sorted({d.what.split(" runs in")[0] for d in told})
        except Exception as failure:
            found: Any = failure
            while found is not None and not isinstance(found, Diagnostic):
                found = found.__cause__ or found.__context__
            if refusal is not None:
                record["verdict"] = "refused"
            else:
                record["verdict"] = "raw-error" if found is None else "coded"
                record["code"] = "" if found is None else found.code
                record["detail"] = f"{type(failure).__name__}: {failure}"[-600:]
            return record
        finally:
            record["seconds"] = round(time.perf_counter() - started, 2)
        if refusal is not None:
            record.update(verdict="differs", detail=f"eager refuses ({refusal}), the compiled function answers"[:600])
            return record
        record.update(self.compare(name, dtype, sample, grads, reference, got))
        if fallback:
            record["random"] = True
        return record

    def run(self, fn: Any, sample: Any, seed: int, grads: bool) -> tuple[list[Any], list[Any], list[Any]]:
        """(results, gradients, the arguments afterwards), from arguments of their own memory."""
        torch = self.torch
        leaves: list[Any] = []

        def own(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            mine = _own_memory(value)
            if value.requires_grad and value.is_leaf:
                mine.requires_grad_()
            leaves.append(mine)
            return mine

        sample = sample.transform(own)
        torch.manual_seed(seed)
        with torch.set_grad_enabled(grads):
            out = fn(sample.input, *sample.args, **sample.kwargs)
        outs = torch.utils._pytree.tree_leaves(out)
        grad: list[Any] = []
        if grads:
            tracked = [o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad]
            wanted = [t for t in leaves if t.requires_grad and t.is_leaf]
            if tracked and wanted:
                grad = list(torch.autograd.grad(tracked, wanted, [_weights(o) for o in tracked], allow_unused=True))
        return outs, grad, [t.detach() for t in leaves]

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
                if self.alike(g, w, rtol=rtol, atol=atol):
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
        except Exception:
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
        name, dtype, grads = task["op"], task["dtype"], task["grads"]
        grads = grads and judge.ops[name].supports_autograd and dtype in ("float32", "bfloat16")
        try:
            limit = task["limit"]
            made, chosen = judge.refused(name, limit) if task["errors"] else judge.samples(name, dtype, limit, grads)
        except Exception as failure:
            tell({"sample": -1, "verdict": "skipped", "detail": f"no samples: {failure}"[:300]})
            chosen, made = [], []
        for i in chosen:
            if i < task["start"] or (task["only"] and i not in task["only"]):
                continue
            tell({"begin": i})
            tell({"sample": i, **judge.judge(name, dtype, made[i], grads, task["dynamic"])})
        tell({"done": True})


# ---------------------------------------------------------------------------------------------------------- the sweep
class Worker:
    """One worker process and the thread that reads it."""

    def __init__(self, command: list[str]) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        self.count = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, task: dict[str, Any]) -> None:
        """Hand over one task."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next record; None when the process died.

        Raises:
            queue.Empty: nothing came in time.
        """
        line = self.lines.get(timeout=seconds)
        return None if line is None else json.loads(line)

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


_COMMAND = [sys.executable, __file__, "--worker"]


def judge_task(
    worker: Worker | None, task: dict[str, Any], seconds: float, keep: Any, command: list[str] = _COMMAND
) -> Worker | None:
    """All samples of one operator and dtype, in as many workers as that takes."""
    start = 0
    while True:
        if worker is None or worker.count > _RESTART_AFTER:
            if worker is not None:
                worker.stop()
            worker = Worker(command)
            worker.next(300)
        current = -1
        worker.ask({**task, "start": start})
        try:
            while True:
                record = worker.next(seconds)
                if record is None:
                    keep({"sample": current, "verdict": "crash", "detail": f"exit {worker.process.wait()}"})
                    break
                if "begin" in record:
                    current = record["begin"]
                elif "done" in record:
                    return worker
                else:
                    worker.count += 1
                    keep(record)
        except queue.Empty:
            keep({"sample": current, "verdict": "time-out", "detail": f"more than {seconds} s"})
        worker.stop()
        worker, start = None, current + 1


def sweep(tasks: list[dict[str, Any]], jobs: int, seconds: float, keep: Any) -> None:
    """Judge all tasks in `jobs` workers."""
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    for task in tasks:
        waiting.put(task)

    def serve() -> None:
        worker = None
        while True:
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                break
            worker = judge_task(
                worker, task, seconds, lambda r, task=task: keep({"op": task["op"], "dtype": task["dtype"], **r})
            )
        if worker is not None:
            worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def table(records: list[dict[str, Any]]) -> str:
    """Verdicts by dtype, as Markdown."""
    lines = ["| dtype | samples | " + " | ".join(VERDICTS[:-1]) + " | right |", "|---" * (len(VERDICTS) + 2) + "|"]
    kinds = [d for d in DTYPES if any(r["dtype"] == d for r in records)]
    for dtype in [*kinds, "all"]:
        mine = [r for r in records if dtype in ("all", r["dtype"]) and r["verdict"] != "skipped"]
        counts = Counter(r["verdict"] for r in mine)
        right = sum(counts[v] for v in GOOD) / max(len(mine), 1)
        lines.append(
            f"| {dtype} | {len(mine)} | "
            + " | ".join(str(counts[v]) for v in VERDICTS[:-1])
            + f" | {100 * right:.2f} % |"
        )
    return "\n".join(lines)


def plan(ops: list[str] | None, dtypes: list[str], shard: tuple[int, int], **task: Any) -> list[dict[str, Any]]:
    """The tasks of one shard: every operator with every dtype that its OpInfo lists for the CPU."""
    tasks = []
    for op in databases():
        if ops and name_of(op) not in ops and op.name not in ops:
            continue
        for dtype in dtypes:
            if supports(op, dtype):
                tasks.append({"op": name_of(op), "dtype": dtype, **task})
    return tasks[shard[0] :: shard[1]]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="OpInfo samples compiled with backend='pallas' against eager")
    parser.add_argument("--ops", help="names, comma-separated; all by default")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--limit", type=int, default=0, help="samples an operator and dtype; all by default")
    parser.add_argument("--only", default="", help="numbers of samples, comma-separated")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th task from the i-th")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=90, help="time limit of one sample")
    parser.add_argument("--grads", action="store_true", help="gradients of float32 and bfloat16 samples too")
    parser.add_argument("--errors", action="store_true", help="inputs that eager refuses, instead of samples")
    parser.add_argument("--dynamic", action="store_true", help="compile with dynamic=True")
    parser.add_argument("--again", help="a JSON file: only the operators and dtypes that went wrong in it")
    parser.add_argument("--json", help="where the records go")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return
    index, count = (int(n) for n in given.shard.split("/"))
    only = [int(n) for n in given.only.split(",") if n]
    tasks = plan(
        given.ops.split(",") if given.ops else None, given.dtypes.split(","), (index, count),
        limit=given.limit, grads=given.grads, dynamic=given.dynamic, only=only, errors=given.errors,
    )  # fmt: skip
    if given.again:
        bad = {(r["op"], r["dtype"]) for r in json.loads(Path(given.again).read_text()) if r["verdict"] not in GOOD}
        tasks = [t for t in tasks if (t["op"], t["dtype"]) in bad]
    records: list[dict[str, Any]] = []

    def keep(record: dict[str, Any]) -> None:
        records.append(record)
        if record["verdict"] not in (*GOOD, "skipped"):
            told = {
                k: v for k, v in record.items() if k not in ("op", "dtype", "sample", "verdict", "seconds", "notes")
            }
            print(f"{record['op']} {record['dtype']} #{record['sample']}: {record['verdict']} {told}", flush=True)
        if given.json:
            Path(given.json).write_text(json.dumps(records))

    sweep(tasks, given.jobs, given.seconds, keep)
    print(table(records))


if __name__ == "__main__":
    main()
