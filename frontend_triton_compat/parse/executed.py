"""The text of functions that were made by `exec`: found in the frames that made them.

Input: a function whose file can't be read. Output: a name under which `linecache` holds its text. Law: a text counts
only if compiling it gives the very code of the function; nothing is guessed. Templates that are filled in and executed
(`exec(text.replace(...))`) are how test suites and code generators write many kernels.
"""

from __future__ import annotations
import __future__

import functools
import hashlib
import linecache
import operator
import sys
import types
import weakref
from collections.abc import Iterator

#: function -> the name of its text in linecache
_found: weakref.WeakKeyDictionary[types.FunctionType, str] = weakref.WeakKeyDictionary()
#: bits of ``co_flags`` that ``from __future__ import ...`` sets; code that is executed inherits them
_FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names if n != "nested_scopes")
)


def remember(fn: types.FunctionType) -> None:
    """Look for the text of a function that has no file, while the frames that made it are still there."""
    code = fn.__code__
    if not code.co_filename.startswith("<") or linecache.getlines(code.co_filename, fn.__globals__):
        return
    for text, flags in _texts(code.co_name):
        if _makes(text, flags, code):
            name = f"<executed {hashlib.sha1(text.encode()).hexdigest()[:10]}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            _found[fn] = name
            return


def executed_file(fn: types.FunctionType) -> str | None:
    """The name of a function's text in `linecache`, if it was found when the function was made, or can be now."""
    if fn not in _found:
        remember(fn)
    return _found.get(fn)


def _texts(name: str) -> Iterator[tuple[str, int]]:
    """Strings within reach of the calling frames that may define `name`, with the compiler flags of their frames."""
    wanted = "lambda" if name == "<lambda>" else f"def {name}"
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        flags = frame.f_code.co_flags & _FUTURE
        for value in (*frame.f_locals.values(), *frame.f_code.co_consts):
            if isinstance(value, bytes):
                value = value.decode(errors="ignore")
            if isinstance(value, str) and wanted in value:
                yield value, flags
        frame = frame.f_back


def _makes(text: str, flags: int, code: types.CodeType) -> bool:
    try:
        module = compile(text, code.co_filename, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    pending = [module]
    while pending:
        for const in pending.pop().co_consts:
            if isinstance(const, types.CodeType):
                if const == code:
                    return True
                pending.append(const)
    return False
