"""The compiler's schedule listing -> bundles of the scalar operations that steer it.

Input: the text of a `packed-bundles-post-ra` listing (a VLIW bundle a line or more, empty ones included) and of the
per-bundle utilisation table. Output: tuples of `Op`, and `Slots`. Law: only what decides control flow and copies is
kept (scalar and predicate arithmetic, scalar loads and stores, branches, DMAs); vector work shows up in `Slots`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BUNDLE = re.compile(r"^\s*(?:0x[0-9a-f]+|0)\s+(?:LH|LB|LE|PB|PF|CT)?\s*:[\s>]*\{")
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_REGISTER = re.compile(r"%[a-z]*\d+_([sp]\d+)")
_OP = re.compile(r"^(?:%?([a-z]*\d+(?:_([a-z]\d+))?) = )?([a-z_][\w.]*)\s*(.*)$", re.S)
_ADDRESS = re.compile(r"^\[?(?:\w+:)?\[?#allocation(\d+)(?:_spill)?\]?(?:\s*\+\s*\$(0x[0-9a-f]+))?\]*$")
_GUARD = re.compile(r"^(?:\[[^\]]*\]\s*)?\((!?)%p\d+_(p\d+)(?:,\s*([^)]*))?\)\s*,?\s*(.*)$", re.S)
_THREAD = re.compile(r"^\[thread[^\]]*\]\s*")
_TARGET = re.compile(r"target bundleno = (\d+)")


@dataclass(frozen=True)
class Register:
    """A scalar (``s3``) or predicate (``p0``) register."""

    name: str


@dataclass(frozen=True)
class Address:
    """A place in scalar memory: an allocation and an offset."""

    allocation: str
    offset: int = 0


#: An operand: a register, a 32-bit integer, an address, or None when its value can't be known from the listing.
Operand = Register | int | Address | None


@dataclass(frozen=True)
class Guard:
    """``(%p)`` or ``(!%p)`` before an operation; `otherwise` is the value it keeps when the guard is false."""

    register: str
    negated: bool
    otherwise: Operand = None


@dataclass(frozen=True)
class Op:
    """One steering operation.

    Attributes:
        code: opcode as printed, ``sadd.s32``, ``sbr.rel``, ``dma.hbm_to_vmem`` ...
        to: destination register, or None.
        guard: condition, or None.
        args: operands; for a store to scalar memory (address, value).
        target: bundle number of a branch, or None.
    """

    code: str
    to: str | None
    guard: Guard | None
    args: tuple[Operand, ...] = ()
    target: int | None = None

    @property
    def base(self) -> str:
        """The opcode without its type suffix."""
        return self.code.split(".")[0]


def signed(value: int) -> int:
    """An integer wrapped to 32 bits."""
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def parse(text: str) -> tuple[tuple[Op, ...], ...]:
    """The bundles of a listing, each with its steering operations (often none)."""
    bundles: list[str] = []
    for line in text.splitlines():
        if _BUNDLE.match(line):
            bundles.append(line)
        elif bundles:
            bundles[-1] += "\n" + line
    return tuple(_bundle(b) for b in bundles)


def count(text: str) -> int:
    """How many bundles a listing has."""
    return sum(1 for line in text.splitlines() if _BUNDLE.match(line))


def _bundle(text: str) -> tuple[Op, ...]:
    body = _COMMENT.sub("", text[text.index("{") + 1 :])
    body = body[: body.rindex("}")] if "}" in body else body
    found = (_operation(part.strip()) for part in body.split(";;"))
    return tuple(op for op in found if op is not None)


def _operation(text: str) -> Op | None:
    match = _OP.match(text)
    if match is None:
        return None
    _, to, code, rest = match.groups()
    scalar = bool(to) and to[0] in "sp"
    if code[0] == "v" and not scalar:
        return None
    guard, rest = _guard(rest)
    if code.startswith("sbr"):
        target = _TARGET.search(rest)
        return Op(code, None, guard, target=int(target.group(1)) if target else None)
    if code == "sphi" or code.startswith("int_to_ptr"):  # both only rename: the register is already right
        return None
    if code == "sst":
        address, _, value = rest.rpartition("] ")
        return Op(code, None, guard, (operand(address + "]"), operand(value)))
    if code == "sld":
        return Op(code, to, guard, (operand(rest),))
    if scalar or code.startswith("dma"):
        return Op(code, to if scalar else None, guard, tuple(operand(a) for a in _split(rest)))
    return None


def _guard(rest: str) -> tuple[Guard | None, str]:
    match = _GUARD.match(rest)
    if match is None:
        return None, _THREAD.sub("", rest)
    negated, register, otherwise, remainder = match.groups()
    return Guard(register, bool(negated), operand(otherwise) if otherwise else None), remainder


def operand(text: str) -> Operand:
    """One operand as printed."""
    text = text.strip()
    if register := _REGISTER.search(text):
        return None if "[" in text else Register(register.group(1))  # an address with a register in it: unknown
    if address := _ADDRESS.match(text):
        return Address(address.group(1), int(address.group(2) or "0", 16))
    return signed(int(text)) if re.fullmatch(r"-?\d+", text) else None


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [p for p in (*parts, current) if p.strip()]


@dataclass(frozen=True)
class Slots:
    """How many slots of each unit every bundle uses.

    Attributes:
        units: names, ``MXU``, ``VALU``, ``VLOAD:FILL`` ...
        capacity: slots of each unit in one bundle.
        used: per bundle, slots used.
    """

    units: tuple[str, ...]
    capacity: tuple[int, ...]
    used: tuple[tuple[int, ...], ...]

    def total(self, unit: str) -> int | None:
        """Slots of a unit over the listing, each bundle once; None when the listing has no such unit."""
        if unit not in self.units:
            return None
        column = self.units.index(unit)
        return sum(row[column] for row in self.used)


def parse_slots(text: str) -> Slots:
    """The per-bundle utilisation table; its first row of numbers is the capacity."""
    units: tuple[str, ...] = ()
    rows: list[tuple[int, ...]] = []
    for line in text.splitlines():
        if "VALU" in line and "," in line:
            units = tuple(name.strip() for name in line.split(","))
        elif line.strip() and line.lstrip()[0].isdigit():
            rows.append(tuple(int(x) for x in line.split()))
    return Slots(units, rows[0] if rows else (), tuple(rows[1:]))
