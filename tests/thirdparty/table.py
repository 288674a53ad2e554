"""What a row of the third-party table says, how one is run, and how the results are printed.

Input: rows (`rows_*.py`), one an operator of a package from PyPI. Output: one `Result` a row and dtype, and a package's
table in Markdown. Law: the package runs unmodified with ``import triton`` being ours; the truth is the row's own
formula in torch at float64, its gradients by autograd; a difference beyond the tolerance is "wrong" and nothing else.
"""

from __future__ import annotations

import importlib
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bridge.diagnostics import Diagnostic

HEAD = "| operator | forward | backward | remark |"
HEAD_WITH_TPU = "| operator | forward | backward | TPU | remark |"
#: Largest error that is still rounding, for results that are sums of up to a few thousand terms; see `error_of`.
TOLERANCE = {"float64": 1e-10, "float32": 2e-5, "float16": 5e-3, "bfloat16": 3e-2}


class Draw:
    """Random inputs, the same in every run."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Normally distributed float32."""
        return torch.randn(shape, generator=self.generator) * scale

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Evenly distributed float32."""
        return torch.rand(shape, generator=self.generator) * (high - low) + low

    def integers(self, high: int, *shape: int, low: int = 0) -> torch.Tensor:
        """int64 from ``low`` to ``high - 1``."""
        return torch.randint(low, high, shape, generator=self.generator)

    def bools(self, *shape: int, share: float = 0.5) -> torch.Tensor:
        """True in a `share` of the elements."""
        return torch.rand(shape, generator=self.generator) < share


@dataclass(frozen=True)
class Row:
    """One operator of one package.

    Attributes:
        operator: its name in the table.
        module: where it is; imported when the row runs, after ``import triton`` became ours.
        inputs: makes tensors (floating ones in float32; they are cast to the row's dtype) and other values.
        call: ``call(module, *inputs)``: a tensor or a tuple of tensors and Nones.
        reference: ``reference(*inputs)``: the same from the mathematics; called with float64.
        variant: what is special about this row.
        dtypes: dtypes the row is run in.
        tolerance: dtype -> tolerance, where `TOLERANCE` does not fit; say why beside the row.
        constant: positions of floating inputs whose gradient is not taken.
        keep: positions of floating inputs that stay float32.
        grad: whether there is a backward pass.
        large: inputs at the size that the operator meets in use, for the timing; None: not timed.
        unsupported: why the operator cannot run on a CPU at all; such a row is not run.
        note: what the table says beside it.
    """

    operator: str
    module: str = ""
    inputs: Callable[[Draw], tuple[Any, ...]] = lambda draw: ()
    call: Callable[..., Any] = lambda module: None
    reference: Callable[..., Any] = lambda: None
    variant: str = ""
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    tolerance: Mapping[str, float] = field(default_factory=dict)
    constant: frozenset[int] = frozenset()
    keep: frozenset[int] = frozenset()
    grad: bool = True
    large: Callable[[Draw], tuple[Any, ...]] | None = None
    unsupported: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """Operator and variant."""
        return f"{self.operator}, {self.variant}" if self.variant else self.operator


@dataclass
class Result:
    """What a row came to in one dtype.

    Attributes:
        forward, backward: "right", "wrong", a diagnostic's code, "stops" (another exception) or "" (not run).
        why: what it stopped with, or where it is wrong.
        errors: largest errors of forward and backward.
    """

    row: str
    operator: str
    dtype: str
    forward: str = ""
    backward: str = ""
    why: str = ""
    errors: tuple[float, float] = (0.0, 0.0)
    seconds: float = 0.0
    note: str = ""


def prepared(row: Row, dtype: str, inputs: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Inputs for the package, and the same for the reference: leaves in float64 with the same (rounded) values."""
    mine: list[Any] = []
    theirs: list[Any] = []
    for i, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            mine.append(value)
            theirs.append(value)
            continue
        if value.is_floating_point():
            rounded = value if i in row.keep else value.to(getattr(torch, dtype))
            wanted = row.grad and i not in row.constant
            mine.append(rounded.detach().clone().requires_grad_(wanted))
            theirs.append(rounded.detach().double().requires_grad_(wanted))
        else:
            mine.append(value.clone())
            theirs.append(value.clone())
    return mine, theirs


def tensors(value: Any) -> list[torch.Tensor | None]:
    """A result as a flat list."""
    if value is None or isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in tensors(part)]


def error_of(got: torch.Tensor | None, want: torch.Tensor | None) -> float:
    """Largest difference, relative to an element's size plus the root mean square of all; inf where NaNs differ."""
    if got is None or want is None:
        return 0.0 if got is None and (want is None or not want.any()) else float("inf")
    if got.shape != want.shape:
        return float("inf")
    got, want = got.detach().double(), want.detach().double()
    same = (got == want) | (got.isnan() & want.isnan())
    if bool((~same & ~(got.isfinite() & want.isfinite())).any()):
        return float("inf")
    finite = want[want.isfinite()]
    if same.all() or not finite.numel():
        return 0.0
    size = finite.square().mean().sqrt() + 1e-30
    relative = (got - want).abs() / (want.abs() + size)
    return float(relative[~same].max())


def largest(got: Any, want: Any) -> float:
    """The largest error over corresponding tensors; inf where their number differs."""
    ours, truth = tensors(got), tensors(want)
    if len(ours) != len(truth):
        return float("inf")
    return max((error_of(g, w) for g, w in zip(ours, truth)), default=0.0)


def run_row(row: Row, dtype: str) -> Result:
    """Run one row in one dtype, forward and backward."""
    start = time.perf_counter()
    result = Result(row.name, row.operator, dtype, note=row.note)
    limit = {**TOLERANCE, **row.tolerance}[dtype]
    draw = Draw(zlib.crc32(row.name.encode()))
    stage = "forward"
    try:
        mine, theirs = prepared(row, dtype, row.inputs(draw))
        want = row.reference(*theirs)
        cotangents = [None if t is None else draw.normal(*t.shape) for t in tensors(want)]
        got = row.call(importlib.import_module(row.module), *mine)
        error = largest(got, want)
        result.errors = (error, 0.0)
        result.forward = "right" if error <= limit else "wrong"
        if row.grad:
            stage = "backward"
            leaves = [i for i, t in enumerate(mine) if isinstance(t, torch.Tensor) and t.requires_grad]
            gradients = [_gradients(out, side, leaves, cotangents) for out, side in ((got, mine), (want, theirs))]
            error = largest(*gradients)
            result.errors = (result.errors[0], error)
            result.backward = "right" if error <= limit else "wrong"
        if "wrong" in (result.forward, result.backward):
            result.why = f"errors {result.errors[0]:.2g} and {result.errors[1]:.2g}, tolerance {limit:.2g}"
    except Diagnostic as refused:
        setattr(result, stage, refused.code)
        result.why = str(refused)
    except Exception as stopped:  # the table says of every row what became of it
        setattr(result, stage, "stops")
        result.why = f"{type(stopped).__name__}: {stopped}"
    result.seconds = time.perf_counter() - start
    return result


def _gradients(outputs: Any, inputs: list[Any], leaves: list[int], cotangents: list[Any]) -> list[torch.Tensor | None]:
    pairs = [
        (out, c.to(out.dtype, copy=True))  # an operator may overwrite it
        for out, c in zip(tensors(outputs), cotangents)
        if out is not None and out.requires_grad and c is not None
    ]
    torch.autograd.backward([o for o, _ in pairs], [c for _, c in pairs])
    return [inputs[i].grad for i in leaves]


def run_rows(rows: Iterable[Row], dtypes: Iterable[str] = ()) -> list[Result]:
    """Run rows in all of their dtypes, or in those of them that are named."""
    chosen = set(dtypes)
    out = []
    for row in rows:
        if row.unsupported:
            out.append(Result(row.name, row.operator, "", "not supported", "not supported", row.unsupported))
            continue
        out += [run_row(row, d) for d in row.dtypes if not chosen or d in chosen]
    return out


def markdown(results: Iterable[Result]) -> str:
    """The table of a package: one line a row, dtypes with one outcome together."""
    lines = [HEAD, "|---|---|---|---|"]
    by_row: dict[str, list[Result]] = {}
    for r in results:
        by_row.setdefault(r.row, []).append(r)
    for name, group in by_row.items():
        remarks = dict.fromkeys(_first_line(t) for r in group for t in (r.note, r.why) if t)
        cells = [_outcome([(r.dtype, getattr(r, part)) for r in group]) for part in ("forward", "backward")]
        lines.append("| " + " | ".join([name, *cells, "; ".join(remarks)]) + " |")
    return "\n".join(lines)


def on_tpu(package: str) -> dict[str, str]:
    """Row -> what a TPU makes of the kernels that it launches, from what `tpu.py` wrote down; {} where it did not."""
    page = Path(__file__).with_name(f"tpu_{package}.txt")
    found: dict[str, dict[str, str]] = {}
    for line in page.read_text().splitlines() if page.exists() else ():
        row, outcome, kernel = line.split("\t")
        found.setdefault(row, {})[kernel] = outcome
    return {row: _in_words(outcomes) for row, outcomes in found.items()}


def _in_words(outcomes: Mapping[str, str]) -> str:
    refused: dict[str, dict[str, None]] = {}
    for kernel, outcome in outcomes.items():
        if outcome != "ok":
            refused.setdefault(outcome, {})[kernel.partition("(")[0]] = None
    told = "; ".join(f"{code} (`{'`, `'.join(kernels)}`)" for code, kernels in sorted(refused.items()))
    return f"ok but {told}" if told and "ok" in outcomes.values() else told or "ok"


def with_column(page: str, distribution: str, column: Mapping[str, str]) -> str:
    """A page whose table of a package says what a TPU makes of every row's kernels."""
    if not column:
        return page
    at = page.index(f"## {distribution} ")
    end = page.find("\n## ", at)
    end = len(page) if end < 0 else end
    lines = page[at:end].splitlines()
    known = any(line == HEAD_WITH_TPU for line in lines)
    for i, line in enumerate(lines):
        if not line.startswith("|"):
            continue
        name, forward, backward, *rest = line.strip("|").split(" | " if not line.startswith("|---") else "|")
        rest = rest[1:] if known else rest
        if line in (HEAD, HEAD_WITH_TPU):
            lines[i] = HEAD_WITH_TPU
        elif line.startswith("|---"):
            lines[i] = "|---|---|---|---|---|"
        else:
            cells = [name.strip(), forward, backward, column.get(name.strip(), "–"), " | ".join(rest).strip()]
            lines[i] = "| " + " | ".join(cells) + " |"
    return page[:at] + "\n".join(lines) + ("\n" if page[end - 1 : end] == "\n" else "") + page[end:]


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line.replace("|", "\\|")[:160]


def _outcome(pairs: list[tuple[str, str]]) -> str:
    by_outcome: dict[str, list[str]] = {}
    for dtype, outcome in pairs:
        if outcome:
            by_outcome.setdefault(f"diagnosed {outcome}" if outcome.startswith("TPB") else outcome, []).append(dtype)
    if not by_outcome:
        return "–"
    if len(by_outcome) == 1 and len(next(iter(by_outcome.values()))) == len(pairs):
        return next(iter(by_outcome))
    return "; ".join(f"{outcome} ({', '.join(names)})" for outcome, names in by_outcome.items())
