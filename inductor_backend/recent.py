"""A bounded memory of what was made for recent keys.

Input: keys and how to make a value. Output: the value. Law: made once a key whatever the number of threads; beyond the
limit the value that was asked for least recently is forgotten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values by key, the most recent `limit` of them."""

    def __init__(self, limit: int):
        self.limit = limit
        self.values: OrderedDict[Hashable, T] = OrderedDict()
        self.lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.values)

    def get(self, key: Hashable, make: Callable[[], T], rekeyed: Callable[[], Hashable] | None = None) -> T:
        """The value of a key, made when there is none; `rekeyed` says what the key is after that."""
        value = self.values.get(key)
        if value is None:
            with self.lock:
                value = self.values.get(key)
                if value is None:
                    value = make()
                    self.values[key if rekeyed is None else rekeyed()] = value
                    if len(self.values) > self.limit:
                        self.values.popitem(last=False)
        elif len(self.values) > 1:
            with self.lock:
                if key in self.values:
                    self.values.move_to_end(key)
        return value
