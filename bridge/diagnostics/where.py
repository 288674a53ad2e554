"""A place in the user's source: file, line, column span, function.

Input: a code object, a frame or explicit numbers. Output: a frozen `Where` that can print its source line with a
caret. Law: rendering never raises; a file that is gone renders without its text.
"""

from __future__ import annotations

import linecache
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

#: Files below these folders are ours: `Where.caller` walks past them to the user's frame.
_OUR_PACKAGES = ("bridge", "pallas_core", "frontend_triton_compat", "inductor_backend")
_ROOT = Path(__file__).resolve().parents[2]
_OURS = tuple(str(_ROOT / name) + "/" for name in _OUR_PACKAGES)
#: After a graph break, Dynamo continues a user's function under a name of its own.
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.*)_at_\d+$")

#: How many calls a message shows.
MAX_CALLS = 8


@dataclass(frozen=True)
class Where:
    """A span in a source file.

    Attributes:
        file: path as Python reports it.
        line: 1-based line number.
        col: 1-based column of the first character, 0 when unknown.
        end_col: 1-based column one past the last character, 0 when unknown.
        function: name of the enclosing function, "" when unknown.
        called_from: the place of the call, for a function that is read as part of another one.
    """

    file: str
    line: int
    col: int = 0
    end_col: int = 0
    function: str = ""
    called_from: Where | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + (f":{self.col}" if self.col else "")
        return f"{place} in {self.function}" if self.function else place

    def text(self) -> str:
        """The source line without its line break, or "" when it can't be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def render(self) -> str:
        """The ``-->`` line, the source line and a caret, as in a compiler's message."""
        short = Path(self.file).name
        head = f"  --> {short}:{self.line}" + (f":{self.col}" if self.col else "")
        head += f" in {self.function}" if self.function else ""
        lines = [head]
        source = self.text()
        if source.strip():
            gutter = f"{self.line:5d} | "
            lines.append(gutter + source)
            if self.col:
                width = max(1, (self.end_col or self.col + 1) - self.col)
                width = min(width, max(1, len(source) - self.col + 1))
                lines.append(" " * (len(gutter) - 2) + "| " + " " * (self.col - 1) + "^" * width)
        return "\n".join([*lines, *self._calls()])

    def _calls(self) -> list[str]:
        """A line for each call that led here, the innermost first; of a deep recursion both ends."""
        chain: list[str] = []
        call = self.called_from
        while call is not None:
            place = f"{Path(call.file).name}:{call.line}" + (f" in {call.function}" if call.function else "")
            text = call.text().strip()
            chain.append(f"  called from {place}" + (f": {text}" if text else ""))
            call = call.called_from
        if len(chain) > MAX_CALLS:
            chain[MAX_CALLS - 1 : -1] = [f"  ... {len(chain) - MAX_CALLS} more calls"]
        return chain

    @classmethod
    def of_function(cls, fn: object) -> Where | None:
        """The ``def`` line of a Python function, or None for anything else."""
        code = getattr(fn, "__code__", None)
        if code is None:
            return None
        return cls(code.co_filename, code.co_firstlineno, function=code.co_name)

    @classmethod
    def of_trace(cls, trace: str) -> Where | None:
        """The innermost line of a printed traceback that is neither ours nor a library's, or None."""
        entries = [line.strip() for line in trace.splitlines() if line.strip().startswith('File "')]
        entries = [e for e in entries if not _foreign(e[6:].split('"')[0])]
        if not entries:
            return None
        try:
            file, rest = entries[-1][6:].split('", line ', 1)
            line, function = rest.split(", in ", 1)
            return cls(file, int(line), function=function)
        except ValueError:
            return None

    @classmethod
    def caller(cls, skip: int = 1, beyond: str = "") -> Where | None:
        """The innermost frame that is neither ours nor a library's: the user's own line.

        Args:
            skip: frames that are not looked at.
            beyond: a library's function; if it is among the frames, only what called it is looked at.
        """
        frame: FrameType | None = sys._getframe(skip)  # pyright: ignore[reportPrivateUsage]
        inner = frame
        while beyond and inner is not None:
            if inner.f_code.co_name == beyond and is_library(inner.f_code.co_filename):
                frame = inner.f_back
                break
            inner = inner.f_back
        while frame is not None:
            name = frame.f_code.co_filename
            if not (is_ours(name) or is_library(name) or name.startswith("<torch-pallas")):
                function = _RESUMED.sub(r"\1", frame.f_code.co_name)
                return cls(name, frame.f_lineno, function=function)
            frame = frame.f_back
        return None


def _foreign(file: str) -> bool:
    """Whether a file is not the user's: ours, a library's, or code that was generated."""
    return is_ours(file) or is_library(file) or file.startswith("<")


def is_ours(filename: str) -> bool:
    """Whether a file belongs to one of this project's packages."""
    return filename.startswith(_OURS)


def is_library(filename: str) -> bool:
    """Whether a file belongs to an installed library or the standard library rather than to the user."""
    return (
        "/site-packages/" in filename
        or "/dist-packages/" in filename
        or filename.startswith("<frozen")
        or filename.startswith(f"{sys.base_prefix}/lib/python")
    )
