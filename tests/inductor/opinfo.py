"""PyTorch's OpInfo samples, compiled with backend="pallas" against eager.

    python tests/inductor/opinfo.py --ops add,sum --dtypes float32,int64 --limit 4 --shard 0/8 --jobs 2 --json out.json

Input: which operators, dtypes and samples. Output: a table of verdicts, and a JSON file with a record a sample, one a
line. Law: samples run in worker processes with a time limit, so that a crash or a hang is a verdict as well; with
`--group N`, N samples of an operator are compiled as one function, and judged singly where anything is not equal.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from opinfo_judge import GOOD, Judge, databases, name_of, supports

__all__ = ["DTYPES", "GOOD", "Judge", "judge_task", "supports", "sweep"]

DTYPES = ("float32", "int64", "bfloat16", "bool")
VERDICTS = (*GOOD, "differs", "coded", "raw-error", "crash", "time-out", "skipped")
_RESTART_AFTER = 300
_WORKER = [sys.executable, str(Path(__file__).with_name("opinfo_judge.py"))]


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


def judge_task(
    worker: Worker | None, task: dict[str, Any], seconds: float, keep: Any, command: list[str] = _WORKER
) -> Worker | None:
    """All samples of one operator and dtype, in as many workers as that takes."""
    start = alone = 0
    while True:
        if worker is None or worker.count > _RESTART_AFTER:
            if worker is not None:
                worker.stop()
            worker = Worker(command)
            worker.next(300)
        first, last = -1, -1
        worker.ask({**task, "start": start, "alone": alone})
        try:
            while True:
                record = worker.next(seconds)
                if record is None:
                    failure = {"verdict": "crash", "detail": f"exit {worker.process.wait()}"}
                    break
                if "begin" in record:
                    first, last = record["begin"], record.get("end", record["begin"])
                    worker.count += 1
                elif "done" in record:
                    return worker
                else:
                    start = record["sample"] + 1
                    keep(record)
        except queue.Empty:
            failure = {"verdict": "time-out", "detail": f"more than {seconds} s"}
        worker.stop()
        worker = None
        if last > first:
            # Whose fault it is shows when each sample of the group has a worker's time to itself.
            alone = last + 1
        else:
            keep({"sample": first, **failure})
            start = first + 1


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
    parser.add_argument("--noncontiguous", action="store_true", help="the samples with other strides")
    parser.add_argument("--group", type=int, default=1, help="samples that are compiled as one function")
    parser.add_argument("--json", help="where the records go; what is in it is not judged again")
    given = parser.parse_args()
    index, count = (int(n) for n in given.shard.split("/"))
    only = [int(n) for n in given.only.split(",") if n]
    tasks = plan(
        given.ops.split(",") if given.ops else None, given.dtypes.split(","), (index, count),
        limit=given.limit, grads=given.grads, dynamic=True if given.dynamic else None, only=only, errors=given.errors,
        noncontiguous=given.noncontiguous, group=given.group,
    )  # fmt: skip
    if given.again:
        earlier = [json.loads(line) for line in Path(given.again).read_text().splitlines()]
        bad = {(r["op"], r["dtype"]) for r in earlier if r["verdict"] not in GOOD}
        tasks = [t for t in tasks if (t["op"], t["dtype"]) in bad]
    records: list[dict[str, Any]] = []
    if given.json and Path(given.json).exists():
        records = [json.loads(line) for line in Path(given.json).read_text().splitlines()]
    for task in tasks:
        judged = (r["sample"] for r in records if (r["op"], r["dtype"]) == (task["op"], task["dtype"]))
        task["judged"] = sorted(set(judged))
    file = open(given.json, "a") if given.json else None  # noqa: SIM115  (open for the whole sweep)
    lock = threading.Lock()

    def keep(record: dict[str, Any]) -> None:
        with lock:
            records.append(record)
            if record["verdict"] not in (*GOOD, "skipped"):
                told = {k: v for k, v in record.items() if k in ("code", "detail", "notes")}
                print(f"{record['op']} {record['dtype']} #{record['sample']}: {record['verdict']} {told}", flush=True)
            if file is not None:
                print(json.dumps(record), file=file, flush=True)

    sweep(tasks, given.jobs, given.seconds, keep)
    if file is not None:
        file.close()
    print(table(records))


if __name__ == "__main__":
    main()
