"""`port FILE -o OUT`: a kernel as Pallas source that stands alone.

Input: a file with kernels and launches of them. Output: one file a kernel, which imports jax and Pallas only. Law: a
kernel that has no translation leaves the output as it was; exit codes are those of `check`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bridge.diagnostics import Diagnostic
from bridge.progress import doing
from frontend_triton_compat import shim
from frontend_triton_compat.cli.files import Usage, existing_file, targets_of, writable, write_whole
from frontend_triton_compat.cli.launches import Subject, subjects_of


def port(options: argparse.Namespace) -> int:
    """Write the source; see the module.

    Raises:
        Usage: no such file, several kernels for one output file, or no kernel.
    """
    path = existing_file(options.file)
    targets = targets_of(options.target)
    if len(targets) != 1:
        raise Usage("port writes for one target")
    folder = Path(options.output).is_dir() or options.output.endswith(("/", "\\"))
    if not folder:
        writable(options.output)
    with shim.installed(displace=True):
        (subjects,) = subjects_of([path], options.args, options.kernel, run=not options.no_run).values()
        if not subjects:
            raise Usage(f"{path} has no kernel")
        names = [s.name for s in subjects]
        if not folder and len(subjects) > 1:
            raise Usage(
                f"{path} has several kernels ({', '.join(dict.fromkeys(names))}): choose one with --kernel, "
                f"or give a folder: -o {options.output}/"
            )
        problems, written = [], []
        for subject in subjects:
            with doing(f"{subject.name} for {targets[0]}"):
                try:
                    text = source_of(subject, targets[0])
                except Diagnostic as problem:
                    problems.append(problem if subject.where is None else problem.at(subject.where))
                    continue
                out = Path(options.output) / f"{subject.name}.py" if folder else Path(options.output)
                out.parent.mkdir(parents=True, exist_ok=True)
                write_whole(out, text)
                written.append(f"{out}: {subject.name} for {targets[0]}")
    for line in written:
        print(line)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def source_of(subject: Subject, target: str) -> str:
    """The module's text, headed by where it comes from.

    Raises:
        Diagnostic: the kernel has no launch, or no translation.
    """
    if subject.problem is not None:
        raise subject.problem
    assert subject.kernel is not None and subject.record is not None
    arguments = subject.arguments()
    text = subject.kernel.source(grid=tuple(subject.record["grid"]), target=target, **arguments)
    place = f"{Path(subject.file).name}:{subject.line}"
    return f"# Written by `torch-pallas port` from {place} for {target}, for this launch:\n#   {subject.spec()}\n{text}"
