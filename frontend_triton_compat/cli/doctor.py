"""`doctor`: what is installed, what is attached, what can be compiled for, what is missing.

Input: this machine. Output: a report on stdout; exit code 0 when kernels run on the CPU with supported versions, 1
otherwise. Law: what is optional is named with the extra that installs it and is not a failure; nothing is changed.
"""
# The body of a kernel is not Python's to type:
# pyright: reportOperatorIssue=false

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from dataclasses import dataclass

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import pallas_core as pc
from bridge.diagnostics import Diagnostic
from pallas_core.offline import gpu_tools

#: package -> (lowest version that is supported, first one that is not); None: any.
REQUIRED: dict[str, tuple[str, str | None]] = {
    "torch": ("2.13.0", "2.14"),
    "jax": ("0.10.2", "0.13"),
    "jaxlib": ("0.10.2", "0.13"),
    "numpy": ("1.26", None),
}
#: package -> (extra that installs it, what it is for)
OPTIONAL: dict[str, tuple[str, str]] = {
    "libtpu": ("tpu", "compile for TPUs: `check` and `port` with --target tpu:v5e"),
    "jax-cuda13-plugin": ("cuda", "jax on NVIDIA GPUs; kernels of ours are not run there yet"),
    "absl-py": ("gpu", "compile for GPUs: `check` and `port` with --target gpu:sm90a; see docs/gpu.md"),
    "triton": ("triton", "hand kernels of the genuine package to retarget(); not needed to run kernels"),
}


@dataclass(frozen=True)
class Finding:
    """A line of the report; `problem` says what is wrong, "" when nothing is."""

    text: str
    problem: str = ""


def doctor() -> int:
    """Print the report; see the module."""
    findings = [Finding(f"{'Python':18s} {platform.python_version()}  ({sys.executable})")]
    findings += [_required(name) for name in REQUIRED]
    print("versions")
    for finding in findings:
        _print(finding)
    print("optional")
    for name in OPTIONAL:
        _print(_optional(name))
    lacking = [p for p in gpu_tools.missing() if p != "absl-py"]
    _print(Finding(f"{'GPU compiler':18s} " + (f"missing {', '.join(lacking)}:" if lacking else gpu_tools.find_site())))
    if lacking:
        print("      " + gpu_tools.command().replace("\n", "\n  "))
    print("targets")
    try:
        targets = str(pc.targets())
    except Diagnostic as problem:
        targets = str(problem)
        findings.append(Finding("", problem.what))
    print("\n".join("  " + line for line in targets.splitlines()))
    works = _self_test()
    print("self-test")
    _print(works)
    problems = [f.problem for f in [*findings, works] if f.problem]
    print("all that the CPU needs is here" if not problems else f"{len(problems)} problem{'s' * (len(problems) > 1)}")
    return 1 if problems else 0


def _print(finding: Finding) -> None:
    print(f"  {finding.text}" + (f"\n      problem: {finding.problem}" if finding.problem else ""))


def version_of(name: str) -> str | None:
    """A distribution's version, or None when it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0])[:3])


def _required(name: str) -> Finding:
    found = version_of(name)
    low, high = REQUIRED[name]
    wanted = f">={low}" + (f",<{high}" if high else "")
    if found is None:
        return Finding(f"{name:18s} not installed", f'pip install "{name}{wanted}"')
    fits = _numbers(found) >= _numbers(low) and (high is None or _numbers(found) < _numbers(high))
    return Finding(f"{name:18s} {found}", "" if fits else f'not a supported version: pip install "{name}{wanted}"')


def _optional(name: str) -> Finding:
    found = version_of(name)
    extra, use = OPTIONAL[name]
    missing = f'not installed: pip install "torch-pallas[{extra}]"'  # quoted: zsh takes brackets for a pattern
    return Finding(f"{name:18s} {found or missing}  ({use})")


@triton.jit
def _double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def _self_test() -> Finding:
    x = torch.arange(100, dtype=torch.float32)
    try:
        _double[(4,)](x, 100, BLOCK=32)
    except Diagnostic as problem:
        return Finding("a kernel on the CPU", str(problem))
    right = torch.equal(x, 2 * torch.arange(100, dtype=torch.float32))
    return Finding("a kernel on the CPU: right" if right else "a kernel on the CPU", "" if right else "a wrong result")
