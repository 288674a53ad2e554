"""Source text of functions, as it was when they were decorated.

Input: a function at its decoration, or a function and a new text for it. Output: the text. What no file holds (made by
`exec`, given by ``python -c``, replaced) is kept under a name of its own for `linecache`, so that diagnostics show its
lines. Law: a file that is edited later changes nothing; a text from elsewhere counts only if compiling it gives the
very code of the function; a replaced text keeps the line numbers of the first one.
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
from pathlib import Path

#: function -> the name of its text in linecache, where that is not its file
_found: weakref.WeakKeyDictionary[types.FunctionType, str] = weakref.WeakKeyDictionary()
_replaced: weakref.WeakKeyDictionary[types.FunctionType, str] = weakref.WeakKeyDictionary()
#: function -> the lines of its file when it was decorated: the list that linecache holds
_lines: weakref.WeakKeyDictionary[types.FunctionType, list[str]] = weakref.WeakKeyDictionary()
#: bits of ``co_flags`` that ``from __future__ import ...`` sets; code that is executed inherits them
_FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names if n != "nested_scopes")
)


def remember(fn: types.FunctionType) -> None:
    """Keep the text of a function that is being decorated; without a file, look for it in the frames that made it."""
    code = fn.__code__
    if fn in _replaced:
        return
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    if lines:
        _lines[fn] = lines
        return
    if not code.co_filename.startswith("<"):
        return
    for text, flags in _texts(code.co_name):
        if _makes(text, flags, code):
            _found[fn] = _keep("executed", text)
            return


def file_of(fn: types.FunctionType) -> str:
    """The name that `linecache` has the function's text under: its file, or one that stands for it."""
    found = _replaced.get(fn) or _found.get(fn)
    if found is None and fn not in _lines:
        remember(fn)
        found = _found.get(fn)
    return found or fn.__code__.co_filename


def lines_of(fn: types.FunctionType) -> list[str]:
    """The lines of `file_of`; empty when there is no text."""
    file = file_of(fn)
    return _lines.get(fn) or linecache.getlines(file, fn.__globals__)


def is_replaced(fn: types.FunctionType) -> bool:
    """Whether the function's text was given by `with_text`."""
    return fn in _replaced


def with_text(fn: types.FunctionType, text: str, file: str, line: int) -> types.FunctionType:
    """A function like `fn` whose text is another: for the parser, as Python would still run the code of `fn`.

    Args:
        fn: the function.
        text: a ``def`` statement, without decorators and indentation.
        file: where the first text was.
        line: the line of its ``def`` there.
    """
    twin = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    functools.update_wrapper(twin, fn)
    del twin.__wrapped__
    twin.__kwdefaults__ = fn.__kwdefaults__
    _replaced[twin] = _keep(f"{Path(file).name} replaced", "\n" * (line - 1) + text)
    return twin


def _keep(what: str, text: str) -> str:
    digest = hashlib.sha1(text.encode(errors="surrogatepass")).hexdigest()[:10]
    name = f"<{what.strip('<>')} {digest}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return name


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
    arguments = sys.orig_argv  # python -c "..."
    if "-c" in arguments[1:-1]:
        text = arguments[arguments.index("-c", 1) + 1]
        yield text, 0
        yield text, _FUTURE & __future__.annotations.compiler_flag


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
