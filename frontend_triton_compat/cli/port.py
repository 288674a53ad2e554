"""`port FILE -o OUT`: kernels as Pallas source that stands alone.

Input: a file with kernels and launches of them. Output: one module with all of them, or a module each in a folder; they
import jax and Pallas only. Law: where no kernel has a translation the output is as it was; what
is written was compiled for the target, and a refusal is told; exit codes are those of `check`.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

from bridge.diagnostics import Diagnostic
from bridge.progress import doing
from frontend_triton_compat import shim
from frontend_triton_compat.cli.files import Usage, existing_file, targets_of, writable, write_whole
from frontend_triton_compat.cli.launches import Subject, innermost, subjects_of
from frontend_triton_compat.cli.verdicts import verdict
from frontend_triton_compat.ported import Ported, module_of
from frontend_triton_compat.ported import port as ported


def port(options: argparse.Namespace) -> int:
    """Write the source; see the module.

    Raises:
        Usage: no such file, or no kernel.
    """
    path = existing_file(options.file)
    targets = targets_of(options.target)
    if len(targets) != 1:
        raise Usage("port writes for one target")
    folder = Path(options.output).is_dir() or options.output.endswith(("/", "\\"))
    if not folder:
        writable(options.output)
    parts: list[Ported] = []
    problems: list[Diagnostic] = []
    refused: list[str] = []
    with shim.installed(displace=True):
        (subjects,) = subjects_of([path], options.args, options.kernel, run=not options.no_run).values()
        if not subjects:
            raise Usage(f"{path} has no kernel")
        for subject in subjects:
            with doing(f"{subject.name} for {targets[0]}"):
                try:
                    parts.append(_named(ported_subject(subject, targets[0]), parts))
                    said = verdict(subject, targets[0])
                    if said.verdict != "ok" and said.slug != "missing-dependency":
                        refused.append(f"{parts[-1].name} is written, but {targets[0]} refuses it:\n{said.message}")
                except Diagnostic as problem:
                    problems.append(problem if subject.where is None else problem.at(subject.where))
    groups = [[part] for part in parts] if folder else [parts] if parts else []
    for group in groups:
        out = Path(options.output) / f"{group[0].name}.py" if folder else Path(options.output)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, module_of(group))
        print(f"{out}: {', '.join(part.name for part in group)} for {targets[0]}")
    for problem in (*problems, *refused):
        print(problem, file=sys.stderr)
    return 1 if problems or refused else 0


def ported_subject(subject: Subject, target: str) -> Ported:
    """A subject's kernel for a target.

    Raises:
        Diagnostic: the kernel has no launch, or no translation.
    """
    if subject.problem is not None:
        raise subject.problem
    assert subject.kernel is not None and subject.record is not None
    inner, wrapper, arguments = innermost(subject.kernel), subject.kernel, subject.arguments()
    while wrapper is not inner:
        wrapper, arguments = wrapper.fn, wrapper._chosen((), arguments)
    arguments = inner._signature.bind((), arguments)
    return ported(inner, arguments, tuple(subject.record["grid"]), target, subject.spec())


def _named(part: Ported, before: list[Ported]) -> Ported:
    """The part under a name that no other has: a second launch of a kernel is `name_2`."""
    taken, count, name = {other.name for other in before}, 1, part.name
    while name in taken:
        count += 1
        name = f"{part.name}_{count}"
    if name == part.name:
        return part
    rename = lambda text: re.sub(rf"\b{re.escape(part.name)}(_kernel)?(?=[(,'])", rf"{name}\1", text)
    return replace(part, name=name, body=rename(part.body), example=tuple(map(rename, part.example)))
