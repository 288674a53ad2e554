"""Verdicts: a kernel with a launch, on a target, by the target's real compiler and, where asked, by its values.

Input: a `Subject` and a target. Output: `Verdict`s: one, or one a configuration of `autotune` that gives other code.
Law: a kernel's defect is a row, never the end of the table; nothing is raised for what a kernel does.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.devices import Target
from bridge.diagnostics import Diagnostic, DiagnosticNote, Where, error
from bridge.progress import doing
from frontend_triton_compat.autotune import Autotuner, Config
from frontend_triton_compat.cli.launches import Subject, innermost
from frontend_triton_compat.cli.samples import LIMIT
from frontend_triton_compat.offline import DEFECTS, Verdict

#: What the interpreter says of a form that is wrong.
_WRONG = ("verify-mismatch", "kernel-race", "output-not-covered", "block-out-of-bounds", "ref-index-out-of-bounds")


@dataclass(frozen=True)
class Wish:
    """What is asked about every kernel: whether the compiler takes it, whether its values are right."""

    compile: bool = True
    values: bool = False
    reference: str | None = None  # "triton": the genuine interpreter as well


def verdicts(
    subjects: Sequence[Subject], targets: Sequence[str], wish: Wish = Wish()
) -> tuple[list[Verdict], list[str]]:
    """Verdicts of every kernel on every target, in order, and the notes that were issued on the way."""
    rows: list[Verdict] = []
    notes: dict[str, None] = {}
    total = len(subjects) * len(targets)
    for count, (subject, target) in enumerate([(s, t) for s in subjects for t in targets], 1):
        with doing(f"[{count}/{total}] {subject.name} on {target}"), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", DiagnosticNote)
            rows += judged(subject, target, wish)
        notes |= dict.fromkeys(str(w.message) for w in seen)
    return rows, list(notes)


def judged(subject: Subject, target: str, wish: Wish) -> list[Verdict]:
    """A subject's verdicts on a target: one, or one for each code that its configurations give."""
    if not wish.compile or subject.tuner is None or subject.problem is not None:
        found = [verdict(subject, target)] if wish.compile else [_unasked(subject, target)]
    else:
        found = _configurations(subject, subject.tuner, target)
    if not wish.values:
        return found
    told = [with_values(row, subject, wish.reference) for row in found]
    return told if wish.compile else [_nothing_small(row, subject) for row in told]


def _nothing_small(row: Verdict, subject: Subject) -> Verdict:
    """Where values are all that was asked for, a launch that can't be simulated is no success."""
    if row.values is None or row.values["verdict"] != "skipped":
        return row
    problem = error(
        "no-launch-known",
        f"no launch of {subject.name} is small enough to be simulated",
        where=subject.where,
        why=f"every grid step is simulated; launches with up to {LIMIT} elements in all arrays are",
        do=f'give a small one: --args "{subject.name}(..., grid=(...,))"',
    )
    return dataclasses.replace(_diagnosed(_base(subject, row.target), subject, problem), values=row.values)


def verdict(subject: Subject, target: str) -> Verdict:
    """What a target says of a kernel; never raises for what the kernel does."""
    return _asked(subject, target, None)


def _asked(subject: Subject, target: str, config: tuple[Any, Mapping[str, Any], Any] | None) -> Verdict:
    """A verdict; with a configuration: the kernel below `autotune`, its arguments, its grid."""
    base = _base(subject, target)
    try:
        if subject.problem is not None:
            raise subject.problem
        Target.parse(target)
        assert subject.kernel is not None and subject.record is not None
        kernel, arguments, grid = subject.kernel, None, tuple(subject.record["grid"])
        if config is not None:
            kernel, arguments, grid = config
        found = kernel.check(grid=grid, target=target, **(subject.arguments() if arguments is None else arguments))
    except Diagnostic as problem:
        return _diagnosed(base, subject, problem)
    except Exception as surprise:  # a defect of ours: told with its code, and the other rows go on
        return _diagnosed(base, subject, _defect(subject, target, surprise), "failed")
    return dataclasses.replace(found, **base)


def _base(subject: Subject, target: str) -> dict[str, Any]:
    launch = subject.spec() if subject.record is not None else ""
    return {"kernel": subject.name, "file": subject.file, "line": subject.line, "target": target, "launch": launch}


def _unasked(subject: Subject, target: str) -> Verdict:
    """A row before anything is asked: it is what `verify` says that counts."""
    base = _base(subject, target)
    return Verdict(**base, verdict="ok") if subject.problem is None else _diagnosed(base, subject, subject.problem)


def _defect(subject: Subject, target: str, surprise: Exception) -> Diagnostic:
    head = str(surprise).splitlines()[0] if str(surprise) else ""
    return error(
        "internal-error",
        f"{type(surprise).__name__} while checking {subject.name} for {target}: {head}",
        where=subject.where,
        do="report it with the kernel's source; nothing was run",
    )


def _diagnosed(base: Mapping[str, Any], subject: Subject, problem: Diagnostic, kind: str = "diagnosed") -> Verdict:
    at = problem.where or subject.where or Where(subject.file, subject.line)
    told = problem if problem.slug == "unknown-target" else problem.at(at)  # one message for all of its rows
    return Verdict(
        **base,
        verdict=kind,
        code=problem.code,
        slug=problem.slug,
        message=str(told),
        where={"line": at.line, "col": at.col},
        problem=told,
    )


# -- autotune


def _configurations(subject: Subject, tuner: Autotuner, target: str) -> list[Verdict]:
    """A verdict for each code that the configurations give; the one with the least static time first."""
    try:
        rows = [
            dataclasses.replace(_asked(subject, target, _configured(subject, tuner, config)), config=name_of(config))
            for config in _worth_judging(subject, tuner)
        ]
    except Diagnostic as problem:
        return [_diagnosed(_base(subject, target), subject, problem)]
    alike: dict[Any, list[Verdict]] = {}
    for row in rows:
        key = (row.verdict, row.source) if row.source and row.verdict == "ok" else (row.verdict, row.code, row.where)
        alike.setdefault(_hashable(key), []).append(row)
    merged = [
        dataclasses.replace(
            group[0],
            config="any" if len(group) == len(rows) else "; ".join(dict.fromkeys(r.config for r in group)),
        )
        for group in alike.values()
    ]
    slow = float("inf")
    return sorted(merged, key=lambda r: (r.verdict != "ok", (r.static or {}).get("time_ms") or slow))


def _hashable(key: tuple[Any, ...]) -> Any:
    return repr(key)


def name_of(config: Config) -> str:
    """A configuration as text: ``BLOCK=128``; what tunes a GPU's code alone is left out where there is more."""
    return ", ".join(f"{name}={value}" for name, value in (config.kwargs or config.all_kwargs()).items())


def _worth_judging(subject: Subject, tuner: Autotuner) -> Sequence[Config]:
    try:
        return tuner._pruned((), _open_arguments(subject, tuner))
    except Diagnostic:
        raise
    except Exception:  # a user's pruning function that wants data: then all are judged
        return tuner.configs


def _open_arguments(subject: Subject, tuner: Autotuner) -> dict[str, Any]:
    """The launch's arguments without those that configurations, or wrappers below, give."""
    given = {name for config in tuner.configs for name in config.kwargs}
    wrapper = tuner.fn
    while wrapper is not innermost(tuner):
        given |= set(getattr(wrapper, "values", {}))
        wrapper = wrapper.fn
    return {name: value for name, value in subject.arguments().items() if name not in given}


def _configured(subject: Subject, tuner: Autotuner, config: Config) -> tuple[Any, Mapping[str, Any], Any]:
    assert subject.record is not None
    arguments = {**_open_arguments(subject, tuner), **config.all_kwargs()}
    return tuner.fn, arguments, subject.grid if subject.grid is not None else tuple(subject.record["grid"])


# -- values


def with_values(row: Verdict, subject: Subject, reference: str | None = None) -> Verdict:
    """The row with what `verify` says of the kernel's small launches; a difference makes it a failed one."""
    if row.verdict != "ok" or subject.kernel is None:
        return row
    if not subject.samples:
        why = "no launch is small enough to be simulated, or none was seen with data"
        return dataclasses.replace(row, values={"verdict": "skipped", "launches": 0, "message": why})
    largest, done = 0.0, 0
    kernel = innermost(subject.kernel)
    for sample in subject.samples:
        run = kernel if set(kernel.arg_names) <= set(sample.arguments) else subject.kernel
        try:
            with doing(f"comparing values, launch {done + 1} of {len(subject.samples)}"):
                found = run.verify(grid=sample.grid, target=row.target, reference=reference, **sample.arguments)
        except Diagnostic as problem:
            kind = "failed" if problem.slug in (*DEFECTS, *_WRONG) else "diagnosed"
            return _differing(row, subject, problem, kind, done)
        except Exception as surprise:  # a defect of ours, as in `_asked`
            return _differing(row, subject, _defect(subject, row.target, surprise), "failed", done)
        largest, done = max(largest, found.max_error), done + 1
    return dataclasses.replace(row, values={"verdict": "equal", "launches": done, "largest": largest})


def _differing(row: Verdict, subject: Subject, problem: Diagnostic, kind: str, done: int) -> Verdict:
    told = _diagnosed(_base(subject, row.target), subject, problem, kind)
    values = {"verdict": "differ" if problem.slug == "verify-mismatch" else "refused", "launches": done}
    kept = {"static": row.static, "source": row.source, "report": row.report, "config": row.config}
    return dataclasses.replace(told, **kept, values=values)
