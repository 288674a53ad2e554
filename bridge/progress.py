"""What long work is doing, with its seconds: one line on stderr, and only where that is a terminal.

Input: texts, one inside another. Output: a line such as ``[2/6] softmax on tpu:v5e: compiling, 12 s`` that is written
over itself and gone when the work ends. Law: where stderr is not a terminal nothing is written and no thread runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

#: Seconds between two looks at the clock; a text is shown at once, its seconds when it has taken one.
_TICK = 0.5


class _Line:
    """The line: texts of the work that goes on, the outermost first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.texts: list[tuple[str, float]] = []
        self.wake = threading.Event()
        self.thread: threading.Thread | None = None

    def push(self, text: str) -> None:
        with self.lock:
            self.texts.append((text, time.monotonic()))
            self._show()
            if self.thread is None:
                self.wake.clear()
                self.thread = threading.Thread(target=self._tick, name="torch-pallas progress", daemon=True)
                self.thread.start()

    def pop(self) -> None:
        with self.lock:
            self.texts.pop()
            self._show()
            ended = None if self.texts else self.thread
            if ended is not None:
                self.thread = None
                self.wake.set()
        if ended is not None:
            ended.join()

    def _tick(self) -> None:
        while not self.wake.wait(_TICK):
            with self.lock:
                if self.texts:
                    self._show()

    def _show(self) -> None:
        text = ": ".join(text for text, _ in self.texts)
        if self.texts:
            seconds = int(time.monotonic() - self.texts[-1][1])
            text += f", {seconds} s" if seconds else " ..."
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


_line = _Line()


@contextlib.contextmanager
def doing(text: str) -> Iterator[None]:
    """Say what runs within this context; silent where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    _line.push(text)
    try:
        yield
    finally:
        _line.pop()
