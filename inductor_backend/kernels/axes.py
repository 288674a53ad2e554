"""Which dimensions of different values are one and the same axis, found by unifying shapes.

Input: dimensions as sequences of atoms. Output: atoms that stand for each other. Law: an atom has at least two elements
and never changes its size; one that a view divides becomes the sequence of its parts, everywhere at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Apart(Exception):
    """Two dimensions can't be one axis, or a group of operators can't be one kernel."""


@dataclass(eq=False)
class Atom:
    """A dimension, or a part of one that a view takes apart."""

    size: int

    def __repr__(self) -> str:
        return f"{self.size}@{id(self) % 9973}"


#: The atoms of every dimension of a value; none for a dimension of 1.
Dims = tuple[tuple[Atom, ...], ...]


class Axes:
    """Atoms, and what they stand for."""

    def __init__(self) -> None:
        self.parts: dict[Atom, tuple[Atom, ...]] = {}

    def fresh(self, shape: Sequence[int]) -> Dims:
        """New atoms for a shape."""
        return tuple((Atom(n),) if n != 1 else () for n in shape)

    def expand(self, atoms: Iterable[Atom]) -> list[Atom]:
        """Atoms that stand for themselves."""
        found: list[Atom] = []
        stack = list(atoms)[::-1]
        while stack:
            atom = stack.pop()
            if atom in self.parts:
                stack.extend(self.parts[atom][::-1])
            else:
                found.append(atom)
        return found

    def flat(self, dims: Dims) -> list[Atom]:
        """All atoms of a value, outermost first."""
        return self.expand(a for dim in dims for a in dim)

    def unify(self, left: Iterable[Atom], right: Iterable[Atom]) -> None:
        """Make two sequences of the same number of elements one.

        Raises:
            Apart: their sizes don't divide each other.
        """
        a, b = list(left)[::-1], list(right)[::-1]
        while True:
            while a and a[-1] in self.parts:
                a[-1:] = self.parts[a[-1]][::-1]
            while b and b[-1] in self.parts:
                b[-1:] = self.parts[b[-1]][::-1]
            if not a or not b:
                break
            first, second = a.pop(), b.pop()
            if first is second:
                continue
            if first.size == second.size:
                self.parts[first] = (second,)
                continue
            if first.size < second.size:
                first, second, a, b = second, first, b, a
            if first.size % second.size:
                raise Apart(f"{first.size} and {second.size} elements")
            rest = Atom(first.size // second.size)
            self.parts[first] = (second, rest)
            a.append(rest)
        if a or b:
            raise Apart("sequences of unequal length")


def elements(atoms: Iterable[Atom]) -> int:
    """The number of elements along atoms."""
    return math.prod(a.size for a in atoms)
