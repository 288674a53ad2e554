"""`check FILE...` and `verify FILE...`: every kernel of the files on every target.

Input: files, targets, launches. Output: a table on stdout, then the diagnostics in full; JSON and HTML where asked for;
exit code 0 when all is well, 1 otherwise. Law: bad usage is known before any long work.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from frontend_triton_compat import shim
from frontend_triton_compat.cli import page
from frontend_triton_compat.cli.files import Usage, existing_file, targets_of, writable, write_whole
from frontend_triton_compat.cli.launches import subjects_of
from frontend_triton_compat.cli.table import as_json, as_text
from frontend_triton_compat.cli.verdicts import Wish, verdicts


def check(options: argparse.Namespace) -> int:
    """Check and print; see the module.

    Raises:
        Usage: the files, the targets or the launches can't be used.
    """
    files = [existing_file(name) for name in dict.fromkeys(options.files)]
    targets = targets_of(options.target)
    outputs = [writable(name) for name in (options.json, options.html) if name and name != "-"]
    if len(outputs) == 2 and outputs[0] == outputs[1]:
        raise Usage("--json and --html name one file")
    values = options.command == "verify" or options.verify or options.reference is not None
    wish = Wish(compile=options.command == "check", values=values, reference=options.reference)
    with shim.installed(displace=True):
        subjects = subjects_of(files, options.args, options.kernel, run=not options.no_run, data=wish.values)
        rows, notes = verdicts([s for found in subjects.values() for s in found], targets, wish)
    for path, found in subjects.items():
        if not found:
            print(f"{path} has no kernel", file=sys.stderr)
    if options.json and options.json != "-":
        write_whole(Path(options.json), as_json(rows))
    if options.html:
        write_whole(Path(options.html), page.as_html(rows, notes))
    for name in (options.json, options.html):
        if name and name != "-":
            print(f"{name} is written", file=sys.stderr)
    print(as_json(rows) if options.json == "-" else as_text(rows, notes), end="")
    return 0 if rows and all(r.verdict == "ok" for r in rows) else 1
