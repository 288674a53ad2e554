"""The command line, ``torch-pallas``: run, check, verify, port, record, explain, doctor.

Input: the arguments of a process. Output: an exit code: 0 all well, 1 a diagnostic, 2 bad usage; `run` and `record`
give the script's own. Law: tables and pages go to stdout, progress goes to stderr and only to a terminal, and a file is
written whole or not at all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bridge.diagnostics import Diagnostic
from frontend_triton_compat.cli.files import Usage

_DESCRIPTION = "JAX Pallas for PyTorch: run Triton kernels, check them for a TPU that is not here, port them to Pallas."
_SPEC = 'a JSON file made by `record`, or a launch as text: "add(x=f32[4096], n=4096, BLOCK=256, grid=(16,))"'


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    parser = argparse.ArgumentParser(prog="torch-pallas", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    run = commands.add_parser("run", help="run a script with `import triton` resolving to torch-pallas")
    run.add_argument("script")
    run.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments")

    check = commands.add_parser("check", help="translate and offline-compile every kernel of a file")
    _add_judging(check)
    check.add_argument("--verify", action="store_true", help="compare the values of small launches as well")
    _add_reference(check)
    verify = commands.add_parser(
        "verify", help="compare the values of every kernel's small launches: the target's form and the CPU's"
    )
    _add_judging(verify)
    _add_reference(verify)

    port = commands.add_parser("port", help="write a kernel as standalone Pallas source")
    port.add_argument("file", metavar="FILE")
    port.add_argument("-o", "--output", required=True, metavar="OUT", help="a file, or a folder for several kernels")
    port.add_argument("--target", default="tpu:v5e", metavar="T", help="default: tpu:v5e")
    _add_selection(port)

    record = commands.add_parser("record", help="run a script and write down its launches for check and port")
    record.add_argument("script")
    record.add_argument("-o", "--output", required=True, metavar="OUT", help="the JSON file")

    explain = commands.add_parser("explain", help="the page of a diagnostic")
    explain.add_argument("code", nargs="?", help="a code (TPB231) or a name (atomic-add); without one, list them all")

    commands.add_parser("doctor", help="versions, devices, what can be compiled for, what is missing")
    return parser


def _add_judging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--target", default="tpu:v5e", metavar="T,T", help="targets, with commas (tpu:v5e)")
    _add_selection(parser)
    parser.add_argument("--json", metavar="F", help="also write them as JSON ('-': to stdout, for the table)")
    parser.add_argument("--html", metavar="F", help="also write them as an HTML page")


def _add_reference(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference", choices=["triton"], help="compare values with the genuine interpreter too, where it is installed"
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--args", action="append", default=[], metavar="SPEC", help=f"{_SPEC}; may be repeated")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--no-run", action="store_true", help="don't run the file's run() or main() to find launches")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; the process' own when None.

    Returns:
        The exit code.
    """
    parser = build_parser()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options, rest = parser.parse_known_args(arguments)
        if rest and options.command != "record":
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
    except SystemExit as stop:  # argparse's way to say "usage" (2) or "help was shown" (0)
        return int(stop.code or 0)
    options.rest = rest
    try:
        return _command(options)
    except Usage as wrong:
        print(f"torch-pallas {options.command}: {wrong}", file=sys.stderr)
        return 2
    except Diagnostic as problem:
        print(problem, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of stdout left, as `| head` does
        sys.stderr.close()
        return 1


def _command(options: argparse.Namespace) -> int:
    # Each command imports what it needs, so that `explain` does not wait for compilers.
    if options.command == "run":
        from frontend_triton_compat.cli import scripts

        return scripts.run(options.script, options.args)
    if options.command == "record":
        from frontend_triton_compat.cli import scripts

        return scripts.record(options.script, options.rest, options.output)
    if options.command == "explain":
        from frontend_triton_compat.cli import explain

        return explain.explain(options.code)
    if options.command == "doctor":
        from frontend_triton_compat.cli import doctor

        return doctor.doctor()
    if options.command == "port":
        from frontend_triton_compat.cli import port

        return port.port(options)
    from frontend_triton_compat.cli import check

    return check.check(options)


__all__ = ["build_parser", "main"]
