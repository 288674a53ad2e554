"""Names of triton.language that have no translation: present, and clear about it when they are used.

Input: a name. Output: a function that raises ``not-translated`` with the construct, the reason and a remedy. Law:
importing such a name is harmless; only a call inside a kernel fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend_triton_compat.language.context import current, fail

# name -> (why, what to do)
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "atomic_poll": ("programs can't wait for each other", "split the kernel in two launches"),
    "globaltimer": ("there is no clock inside a kernel", "time the launch on the host"),
    "num_threads": (
        "a program is one sequence of array operations here, it has no threads",
        "pass the number as a tl.constexpr parameter",
    ),
    "num_warps": (
        "a program is one sequence of array operations here, it has no warps",
        "pass the number as a tl.constexpr parameter",
    ),
    "smid": ("a program has no processor number", "use tl.program_id"),
    "extract_slice": ("slices of a tile have no translation", "load the part that is needed"),
    "insert_slice": ("slices of a tile have no translation", "store the parts one by one"),
}


def unsupported(name: str) -> Callable[..., Any]:
    """A stand-in for a function of triton.language that has no translation."""
    why, do = UNSUPPORTED.get(name, ("there is no row for it in the op table yet", "write it with other tl functions"))

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        current(f"tl.{name}")
        raise fail("not-translated", f"{name} has no translation", why=why, do=do)

    stand_in.__name__ = stand_in.__qualname__ = name
    stand_in.__doc__ = f"`{name}` has no translation: {why}."
    return stand_in
