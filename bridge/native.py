"""The machine code of a small program, called without XLA's runtime around it.

Input: a compiled program as its client writes it down, and the shapes of its operands and results. Output: `Native`,
one function of memory addresses, or None. Law: what is not understood to the last field is not called. Who calls it
compares it with the program first (`engine.direct`).

XLA's runtime takes 10 µs for a call whose kernels take less than one: it counts references to buffers, keeps events,
and makes objects of results. The kernels are plain functions, compiled ahead: they call nothing but the C library, and
are relocatable by absolute addresses only. Programs that are a sequence of such kernels are called here, with
conditions perhaps, and with matrix products of floats, which the BLAS inside torch computes as it does for eager; those
with loops, convolutions or collectives are left to XLA.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import mmap
import platform
import struct
import sys
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

__all__ = ["Native", "native"]

#: XLA reads memory in lines of this many bytes.
_LINE = 64
#: Programs with more kernels take long to place. A step of Adam on a hundred parameters has some hundreds.
_MOST_KERNELS = 4096
#: Larger memory of its own is better given back after a call.
_MOST_SCRATCH = 1 << 20

_Fields = list[tuple[int, Any]]


class NotUnderstood(Exception):
    """A program is not of the plain kind, or is written down in another way than expected."""


class Native:
    """A program as one function of addresses.

    `frame()` makes the memory of one call: words, of which the caller sets the first ones to the addresses of the
    operands and then of the results, all of them 64-byte aligned; `run(frame[1])` computes and returns None, or the
    address of XLA's error. A frame serves one call at a time.

    Attributes:
        operands: how many operands there are.
        results: how many results there are.
        rounds: whether it computes matrix products, which round in another order than XLA's.
        run: the function.
    """

    def __init__(self, code: _Code, operands: int, results: int, rounds: bool):
        self._code = code
        self.rounds = rounds
        self.operands, self.results = operands, results
        self.run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(code.entry)

    def frame(self) -> tuple[array[int], ctypes.c_void_p, Any]:
        """(words, what `run` takes, memory that both need)."""
        scratch = ctypes.create_string_buffer(self._code.scratch + _LINE)
        start = ctypes.addressof(scratch)
        start += -start % _LINE
        words = array("Q", bytes(8 * self._code.words))
        address = words.buffer_info()[0]
        for at, base, offset in self._code.fixed:
            words[at] = {"number": 0, "frame": address, "scratch": start}[base] + offset
        return words, ctypes.c_void_p(address), scratch


def native(
    written: Callable[[], bytes],
    operands: Sequence[tuple[tuple[int, ...], Any]],
    results: Sequence[tuple[tuple[int, ...], Any]],
    late: Collection[int] = (),
) -> Native | None:
    """The program as a function of addresses, or None.

    Args:
        written: the executable, as its client serialises it.
        operands: shape and numpy dtype of each.
        results: likewise.
        late: positions of results that are computed elsewhere and copied when all else is done: their addresses may be
            those of operands, and need no alignment.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return None
    sizes = [[math.prod(shape) * dtype.itemsize for shape, dtype in part] for part in (operands, results)]
    if not all(sizes[0] + sizes[1]) or not results:
        return None
    try:
        plan = _read(written(), sizes[0], sizes[1], late)
        rounds = any(isinstance(step, _Product) for step in plan.steps)
        return Native(_load(plan), len(operands), len(results), rounds)
    except (NotUnderstood, IndexError, KeyError, ValueError, struct.error, OSError):
        return None


# Reading -------------------------------------------------------------------------------------------------------


class _Slice(NamedTuple):
    """A piece of an allocation."""

    allocation: int
    offset: int


@dataclass
class _Kernel:
    """A call of a compiled function."""

    name: str
    groups: tuple[int, int, int]
    arguments: list[_Slice]


@dataclass
class _Copy:
    """A copy of so many bytes."""

    source: _Slice
    target: _Slice
    nbytes: int


@dataclass
class _Unless:
    """A jump to a label, unless the first branch of a conditional is taken: true, or the number 0."""

    index: _Slice
    nbytes: int
    label: int


@dataclass
class _Jump:
    """A jump to a label."""

    label: int


@dataclass
class _Label:
    """Where jumps lead."""

    label: int


@dataclass
class _Product:
    """`batch` products of matrices of floats, (m, k) by (k, n), as BLAS takes them: the first is read by column.

    Attributes:
        name: the function of BLAS.
        pieces: the first matrix, the second one, the result.
        steps: bytes from one matrix to the next, of each.
        words: what the function takes, but the addresses: two letters, m, n, k, alpha, the leading dimensions of the
            two, beta, and that of the result.
        parameters: where these are among the constants.
    """

    name: str
    pieces: list[_Slice]
    batch: int
    steps: tuple[int, int, int]
    words: bytes
    parameters: int = 0


_Step = _Kernel | _Copy | _Unless | _Jump | _Label | _Product


@dataclass
class _Plan:
    """What a program does, and with which memory.

    `place` says of an allocation: ("word", number of the caller's word), ("scratch", offset) or ("constant", offset).
    """

    steps: list[_Step]
    objects: list[bytes]
    place: dict[int, tuple[str, int]]
    callers: int
    constants: bytes
    scratch: int = 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data: bytes) -> _Fields:
    """The fields of a message in protocol buffers' encoding: numbers, or bytes."""
    found, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise NotUnderstood(f"a field of kind {kind}")
        found.append((key >> 3, value))
    if at != len(data):
        raise NotUnderstood("a message of another length")
    return found


def _all(fields: _Fields, number: int) -> list[Any]:
    return [value for n, value in fields if n == number]


def _one(fields: _Fields, number: int, default: Any = 0) -> Any:
    return next((value for n, value in reversed(fields) if n == number), default)


def _numbers(fields: _Fields, number: int) -> list[int]:
    """A repeated number, packed or not."""
    found: list[int] = []
    for value in _all(fields, number):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            n, at = _varint(value, at)
            found.append(n)
    return found


def _only(fields: _Fields, *numbers: int) -> _Fields:
    """The fields, of which there are no others than these."""
    if any(n not in numbers for n, _ in fields):
        raise NotUnderstood(f"fields {sorted({n for n, _ in fields} - set(numbers))}")
    return fields


def _read(written: bytes, operands: list[int], results: list[int], late: Collection[int]) -> _Plan:
    """A serialised executable as a plan; field numbers are those of XLA's executable.proto, thunk.proto and hlo.proto.

    Args:
        written: the executable.
        operands: bytes of each.
        results: bytes of each.
        late: positions of results that are copied at the end.
    """
    head, at = _varint(written, 0)  # of the client
    result = _fields(_one(_fields(written[at + head :]), 1))
    assignment = _fields(_one(result, 2))
    sizes: dict[int, int] = {}
    place: dict[int, tuple[str, int]] = {}
    homes: dict[int, _Slice] = {}
    constant: set[int] = set()
    for entry in map(_fields, _all(assignment, 3)):
        number, size = _one(entry, 1), _one(entry, 2)
        sizes[number] = size
        for logical in map(_fields, _all(entry, 9)):
            homes[_one(logical, 1)] = _Slice(number, _one(logical, 2))
        if _one(entry, 5):
            parameter = _one(entry, 6)
            if _numbers(entry, 10) or size != operands[parameter]:
                raise NotUnderstood("an operand")
            place[number] = "word", parameter
        elif _one(entry, 12):
            constant.add(number)
        elif _one(entry, 3):
            place[number] = "refused", 0  # memory of a thread
    # Before the module is taken apart, which takes long: most programs that are refused are refused here.
    steps = list(_steps(_fields(_one(result, 6, b"")), sizes, itertools.count()))
    values = _Values(_fields(_one(_fields(_one(result, 1)), 1)), assignment, homes)
    kept = 0
    for position, found in enumerate(values.results(len(results))):
        if found.offset or sizes[found.allocation] != results[position] or found.allocation in (*place, *constant):
            raise NotUnderstood("a result")
        place[found.allocation] = "word", len(operands) + position
        if position in late:
            # An allocation of the caller's, with a number that XLA has not.
            place[-1 - position] = place[found.allocation]
            place[found.allocation] = "scratch", kept
            kept += results[position] + -results[position] % _LINE
            steps.append(_Copy(_Slice(found.allocation, 0), _Slice(-1 - position, 0), results[position]))
    used = {s.allocation for step in steps for s in _slices(step)}
    constants, scratch = bytearray(), kept
    for number in sorted(used - set(place)):
        if number in constant:
            place[number] = "constant", len(constants)
            contents = values.constant(number, sizes[number])
            constants += contents + bytes(-len(contents) % _LINE)
        else:
            place[number] = "scratch", scratch
            scratch += sizes[number] + -sizes[number] % _LINE
    for step in steps:
        if isinstance(step, _Product):
            step.parameters = len(constants)
            constants += step.words + bytes(-len(step.words) % _LINE)
    if not steps or sum(isinstance(s, _Kernel) for s in steps) > _MOST_KERNELS or scratch - kept > _MOST_SCRATCH:
        raise NotUnderstood("a program of another size")
    if any(place[number][0] == "refused" for number in used):
        raise NotUnderstood("memory of another kind")
    objects = [_one(_fields(o), 1) for o in _all(result, 8)]
    return _Plan(steps, objects, place, len(operands) + len(results), bytes(constants), scratch)


def _slices(step: _Step) -> list[_Slice]:
    match step:
        case _Kernel():
            return step.arguments
        case _Copy():
            return [step.source, step.target]
        case _Unless():
            return [step.index]
        case _Product():
            return step.pieces
    return []


class _Values:
    """Where the values of a module lie."""

    def __init__(self, module: _Fields, assignment: _Fields, homes: dict[int, _Slice]):
        computations = [_fields(c) for c in _all(module, 3)]
        entry = next(c for c in computations if _one(c, 5) == _one(module, 6))
        self.instructions = {_one(i, 35): i for c in computations for i in map(_fields, _all(c, 2))}
        self.root = _one(entry, 6)
        self.defined: dict[tuple[int, ...], _Slice] = {}
        for buffer in map(_fields, _all(assignment, 1)):
            at = _fields(_one(buffer, 3))
            if _one(buffer, 1) in homes:
                self.defined[_one(at, 4), *_numbers(at, 3)] = homes[_one(buffer, 1)]

    def find(self, number: int, index: tuple[int, ...]) -> _Slice:
        """The home of (an element of) what an instruction gives."""
        instruction = self.instructions[number]
        opcode, inputs = _one(instruction, 2), _numbers(instruction, 36)
        if opcode == b"tuple":
            return self.find(inputs[index[0]], index[1:])
        if opcode == b"get-tuple-element":
            return self.find(inputs[0], (_one(instruction, 13), *index))
        if opcode == b"bitcast":
            return self.find(inputs[0], index)
        return self.defined[number, *index]

    def results(self, count: int) -> list[_Slice]:
        """The home of each result."""
        several = _one(_fields(_one(self.instructions[self.root], 3)), 2) == 13  # the element type of tuples
        if not several and count != 1:
            raise NotUnderstood("another number of results")
        return [self.find(self.root, (position,) if several else ()) for position in range(count)]

    def constant(self, allocation: int, size: int) -> bytes:
        """The contents of an allocation that holds a constant: a number or a row of numbers."""
        (number,) = [key[0] for key, home in self.defined.items() if home == (allocation, 0)]
        if _one(self.instructions[number], 2) != b"constant":
            raise NotUnderstood("a constant")
        literal = _fields(_one(self.instructions[number], 8))
        shape = _fields(_one(literal, 1))
        code, where = _LITERALS[_one(shape, 2)]
        if len(_numbers(shape, 3)) > 1:
            raise NotUnderstood("a constant of several dimensions")
        if code:  # whole numbers are written in as many bytes as they need
            numbers = [n - (1 << 64) if n >> 63 and code.islower() else n for n in _numbers(literal, where)]
            contents = struct.pack(f"<{len(numbers)}{code}", *numbers)
        else:
            contents = b"".join(_all(literal, where))
        if len(contents) != size:
            raise NotUnderstood("a constant")
        return contents


#: Element type -> (how whole numbers lie in memory, or nothing where they are written as they lie; field of a literal).
_LITERALS = {1: ("", 2), 2: ("", 15), 4: ("i", 4), 5: ("q", 5), 6: ("", 3), 8: ("I", 6), 9: ("Q", 7)}
_LITERALS |= {10: ("", 11), 11: ("", 8), 12: ("", 9), 16: ("", 13)}


def _steps(sequence: _Fields, sizes: dict[int, int], labels: Iterator[int]) -> Iterator[_Step]:
    """What a sequence of thunks does, in order."""
    for thunk in map(_fields, _all(sequence, 1)):
        ((kind, body),) = [(n, value) for n, value in _only(thunk, 1, 2, 3, 4, 7, 11, 12) if n > 2]
        if kind == 3:
            yield from _steps(_fields(_one(_only(_fields(body), 1), 1)), sizes, labels)
        elif kind == 4:
            choice = _only(_fields(body), 1, 2)
            first, second = _all(choice, 1)
            index, nbytes = _slice(_one(choice, 2), sizes)
            if nbytes not in (1, 4):
                raise NotUnderstood("a condition")
            other, end = next(labels), next(labels)
            yield _Unless(index, nbytes, other)
            yield from _steps(_fields(first), sizes, labels)
            yield _Jump(end)
            yield _Label(other)
            yield from _steps(_fields(second), sizes, labels)
            yield _Label(end)
        elif kind == 7:
            yield _product(_only(_fields(body), 1, 2, 3, 4), sizes)
        elif kind == 11:
            kernel = _only(_fields(body), 1, 2, 3, 4, 5, 6)
            groups = _only(_fields(_one(kernel, 2)), 1, 2, 3)
            x, y, z = (_one(groups, n) for n in (1, 2, 3))
            if (x, y, z) != (1, 1, 1):
                raise NotUnderstood("a kernel for several threads")
            shaped = [_only(_fields(s), 1, 2) for s in _all(kernel, 5) + _all(kernel, 6)]
            yield _Kernel(_one(kernel, 1).decode(), (x, y, z), [_slice(_one(s, 1), sizes)[0] for s in shaped])
        else:
            copy = _only(_fields(body), 1, 2)
            source, target = (_only(_fields(_one(copy, n)), 1, 2) for n in (1, 2))
            if _one(source, 1) != _one(target, 1):
                raise NotUnderstood("a copy between layouts")
            (here, nbytes), (there, _) = (_slice(_one(s, 2), sizes) for s in (source, target))
            yield _Copy(here, there, nbytes)


def _slice(data: bytes, sizes: dict[int, int]) -> tuple[_Slice, int]:
    """A piece of an allocation, and its bytes."""
    fields = _only(_fields(data), 1, 2, 3, 4)
    offset, size, allocation = (_one(fields, n) for n in (1, 2, 3))
    if offset + size > sizes[allocation]:
        raise NotUnderstood("memory outside of its allocation")
    return _Slice(allocation, offset), size


#: Element type -> (letter of BLAS, how a number of it lies in memory).
_FLOATS = {11: ("s", "f"), 12: ("d", "d")}


def _product(dot: _Fields, sizes: dict[int, int]) -> _Product:
    """A matrix product, with or without dimensions of a batch, which are the first ones."""
    dimensions = _fields(_one(dot, 1, b""))
    summed = [_numbers(dimensions, n) for n in (1, 2)]
    batches = [_numbers(dimensions, n) for n in (3, 4)]
    several = len(batches[0])
    if batches != [list(range(several))] * 2 or [len(s) for s in summed] != [1, 1]:
        raise NotUnderstood("a product of another form")
    found: list[tuple[_Slice, int, list[int], list[int]]] = []
    for number in (2, 3, 4):
        shaped = _only(_fields(_one(dot, number)), 1, 2)
        shape = _fields(_one(shaped, 1))
        lengths, steps, step = _numbers(shape, 3), [0] * len(_numbers(shape, 3)), 1
        for d in _numbers(_fields(_one(shape, 5, b"")), 1):
            steps[d], step = step, step * lengths[d]
        for d in range(several - 1):
            if steps[d] != steps[d + 1] * lengths[d + 1]:
                raise NotUnderstood("a batch of another layout")
        if not step or len(lengths) > several + 2:
            raise NotUnderstood("a product of another form")
        found.append((_slice(_one(shaped, 2), sizes)[0], _one(shape, 2), lengths, steps))
    kinds = {kind for _, kind, _, _ in found}
    if len(kinds) != 1 or not kinds <= set(_FLOATS):
        raise NotUnderstood("a product of other numbers")
    letter, code = _FLOATS[kinds.pop()]
    itemsize = struct.calcsize(code)
    count = math.prod(found[0][2][:several])

    def parts(number: int) -> tuple[int, int, int, int]:
        """(length and step of the dimension that stays, and of the one that is summed)."""
        _, _, lengths, steps = found[number]
        (inner,) = summed[number]
        free = [d for d in range(several, len(lengths)) if d != inner]
        length, step = (lengths[free[0]], steps[free[0]]) if free else (1, 1)
        return length, step, lengths[inner], steps[inner]

    (m, m_step, k, left), (n, n_step, k_too, right) = parts(0), parts(1)
    kept = [(length, step) for length, step in zip(found[2][2][several:], found[2][3][several:])]
    expected = [m] * (len(found[0][2]) == several + 2) + [n] * (len(found[1][2]) == several + 2)
    if k != k_too or [length for length, _ in kept] != expected:
        raise NotUnderstood("a product of another form")
    m_out = kept[0][1] if len(found[0][2]) == several + 2 else n
    n_out = kept[-1][1] if len(found[1][2]) == several + 2 else m
    if n_out == 1 or n == 1 != m_out:
        # The result lies row by row, which is its transpose by column: B' A' for A B.
        order, (p, q) = (1, 0), ((n, n_step, right), (m, m_step, left))
        leading = m_out
    elif m_out == 1:
        order, (p, q) = (0, 1), ((m, m_step, left), (n, n_step, right))
        leading = n_out
    else:
        raise NotUnderstood("a product of another layout")
    first, first_leading = _turned(*p, k)
    second, second_leading = _turned(q[0], q[1], q[2], k)
    # The second matrix is (k, q): it lies by column when k is the dimension without gaps.
    second = b"T" if second == b"N" else b"N"
    integers = lambda *values: struct.pack(f"<{len(values)}q", *values)
    number = lambda value: struct.pack(f"<{code}", value).ljust(8, b"\0")
    words = first.ljust(8, b"\0") + second.ljust(8, b"\0") + integers(p[0], q[0], k) + number(1)
    words += integers(first_leading, second_leading) + number(0) + integers(max(leading, p[0]))
    pieces = [found[order[0]][0], found[order[1]][0], found[2][0]]
    steps = [(found[i][3][several - 1] * itemsize if several else 0) for i in (*order, 2)]
    return _Product(f"{letter}gemm_", pieces, count, (steps[0], steps[1], steps[2]), words)


def _turned(length: int, step: int, summed_step: int, k: int) -> tuple[bytes, int]:
    """How BLAS reads a matrix (length, k): b"N" by column or b"T" by row, and its leading dimension."""
    if step == 1 and (length == 1 or k == 1 or summed_step >= length):
        return b"N", max(summed_step, length) if k > 1 else length
    if summed_step == 1 or k == 1:
        return b"T", max(step, k)
    if length == 1:
        return b"N", summed_step
    raise NotUnderstood("a matrix of another layout")


# Loading -------------------------------------------------------------------------------------------------------


@dataclass
class _Code:
    """Machine code in memory, and what a frame of it looks like.

    `fixed` are words that do not change from call to call: (which word, what its number is counted from, the number).
    """

    memory: mmap.mmap
    entry: int
    words: int
    scratch: int
    fixed: list[tuple[int, str, int]] = field(default_factory=list)


def _load(plan: _Plan) -> _Code:
    """Place the sections of the object files in memory, and write the function that calls the kernels in order."""
    sections: list[tuple[int, bytes]] = []  # (offset in memory, contents)
    patches: list[tuple[int, int | str, int]] = []  # (offset in memory, what it refers to, addend)
    functions: dict[str, int] = {}
    size = 0
    for data in plan.objects:
        size = _sections(data, size, sections, patches, functions)
    size += -size % _LINE
    words, fixed, moves = _frame(plan)
    constants, size = size, size + len(plan.constants)
    caller = size
    length = len(_caller(plan, moves, lambda name: 0, 0))
    size += length
    memory = mmap.mmap(-1, size)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for offset, contents in [*sections, (constants, plan.constants)]:
        memory[offset : offset + len(contents)] = contents
    for offset, symbol, addend in patches:
        target = start + symbol if isinstance(symbol, int) else _address(symbol)
        memory[offset : offset + 8] = struct.pack("<Q", target + addend)
    memory[caller:size] = _caller(plan, moves, lambda name: start + functions[name], start + constants)
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), 5):  # read, execute
        raise OSError(ctypes.get_errno(), "mprotect")
    fixed = [
        (word, "number", n + start + constants) if base == "constant" else (word, base, n) for word, base, n in fixed
    ]
    return _Code(memory, start + caller, words, plan.scratch, fixed)


@functools.cache
def _torch_libraries() -> list[str]:
    """Torch's own library, which has the BLAS that eager uses."""
    folder = Path(str(torch.__file__)).parent / "lib"
    return [str(path) for path in (folder / "libtorch_cpu.so",) if path.exists()]


@functools.cache
def _address(name: str) -> int:
    """Where the C library, or the BLAS of torch, has a function."""
    for library in (None, "libm.so.6", *_torch_libraries()):
        found = getattr(ctypes.CDLL(library), name, None)
        if found is not None:
            return ctypes.cast(found, ctypes.c_void_p).value or 0
    raise NotUnderstood(f"a call of {name}")


def _sections(
    data: bytes,
    size: int,
    sections: list[tuple[int, bytes]],
    patches: list[tuple[int, int | str, int]],
    functions: dict[str, int],
) -> int:
    """Lay out one relocatable ELF file for x86-64 from offset `size` on; the end."""
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, 62):
        raise NotUnderstood("an object file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    each, count = struct.unpack_from("<HH", data, 0x3A)
    # name, type, flags, address, offset, size, link, info, alignment, size of an entry
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * each) for i in range(count)]
    contents = [data[h[4] : h[4] + h[5]] for h in headers]
    placed: dict[int, int] = {}
    for i, (_, kind, flags, _, _, length, _, _, alignment, _) in enumerate(headers):
        if flags & 2 and kind == 1 and length:  # takes memory, has contents
            size += -size % max(alignment, 16)
            placed[i] = size
            sections.append((size, contents[i]))
            size += length
        elif flags & 2 and length and kind != 0x70000001:  # unwinding is for debuggers
            raise NotUnderstood("a section of another kind")
    (symbols,) = [i for i, h in enumerate(headers) if h[1] == 2]
    names = contents[headers[symbols][6]]
    found: list[int | str | None] = []
    for at in range(0, len(contents[symbols]), 24):
        name, kind, _, home, value, _ = struct.unpack_from("<IBBHQQ", contents[symbols], at)
        text = names[name : names.index(b"\0", name)].decode()
        found.append(placed[home] + value if home in placed else text if home == 0 and text else None)
        if kind & 15 == 2 and home in placed:
            functions[text] = placed[home] + value
    for kind, target, rows in [(h[1], h[7], contents[i]) for i, h in enumerate(headers)]:
        if kind not in (4, 9) or target not in placed:
            continue
        for at in range(0, len(rows), 24):
            offset, info, addend = struct.unpack_from("<QQq", rows, at)
            symbol = found[info >> 32]
            if kind != 4 or info & 0xFFFFFFFF != 1 or symbol is None:  # absolute addresses of 64 bits only
                raise NotUnderstood("a relocation")
            patches.append((placed[target] + offset, symbol, addend))
    return size


def _frame(plan: _Plan) -> tuple[int, list[tuple[int, str, int]], list[list[tuple[int, int, int]]]]:
    """The words of a frame: those of the caller, then for each kernel what its function takes.

    Returns:
        The number of words; those that are fixed; and for each step what is to be set before it: (which word, the
        caller's word, an offset).
    """
    at = plan.callers
    fixed: list[tuple[int, str, int]] = []
    moves: list[list[tuple[int, int, int]]] = []

    def pointer(word: int, piece: _Slice, moved: list[tuple[int, int, int]]) -> None:
        kind, number = plan.place[piece.allocation]
        if kind == "word":
            moved.append((word, number, piece.offset))
        else:
            fixed.append((word, kind, number + piece.offset))

    for step in plan.steps:
        moved: list[tuple[int, int, int]] = [(at, 0, 0)]
        if isinstance(step, _Copy):
            pointer(at, step.target, moved)
            pointer(at + 1, step.source, moved)
            at += 2
        elif isinstance(step, _Unless):
            pointer(at, step.index, moved)
            at += 1
        elif isinstance(step, _Product):
            # three addresses, the same for the present turn, how many turns are left
            for i, piece in enumerate(step.pieces):
                pointer(at + i, piece, moved)
            at += 7
        elif isinstance(step, _Kernel):
            # {number of groups, which group, number of arguments, arguments}; x, y, z twice; (address, bytes) each
            first = at + 10
            fixed += [(at, "frame", 8 * (at + 4)), (at + 1, "frame", 8 * (at + 7))]
            fixed += [(at + 2, "number", len(step.arguments)), (at + 3, "frame", 8 * first)]
            fixed += [(at + 4 + i, "number", n) for i, n in enumerate((*step.groups, 0, 0, 0))]
            for i, piece in enumerate(step.arguments):
                pointer(first + 2 * i, piece, moved)
            at = first + 2 * len(step.arguments)
        moves.append(moved)
    return at, fixed, moves


def _caller(plan: _Plan, moves: list[list[tuple[int, int, int]]], where: Callable[[str], int], constants: int) -> bytes:
    """The function of a frame's address that takes all steps: machine code of x86-64, System V calling convention."""
    code = bytearray(b"\x53\x48\x89\xfb")  # push rbx; mov rbx, rdi
    labels: dict[int, int] = {}
    jumps: list[tuple[int, int]] = []
    end = -1

    def jump(opcode: bytes, label: int) -> None:
        code.extend(opcode + bytes(4))
        jumps.append((len(code), label))

    for step, ((at, _, _), *moved) in zip(plan.steps, moves, strict=True):
        for word, source, offset in moved:
            code += b"\x48\x8b\x83" + struct.pack("<i", 8 * source)  # mov rax, [rbx + ..]
            if offset:
                code += b"\x48\x05" + struct.pack("<i", offset)  # add rax, ..
            code += b"\x48\x89\x83" + struct.pack("<i", 8 * word)  # mov [rbx + ..], rax
        match step:
            case _Kernel():
                code += b"\x48\x8d\xbb" + struct.pack("<i", 8 * at)  # lea rdi, [rbx + ..]
                code += b"\x48\xb8" + struct.pack("<Q", where(step.name)) + b"\xff\xd0"  # mov rax, ..; call rax
                jump(b"\x48\x85\xc0\x0f\x85", end)  # test rax, rax; jnz
            case _Copy():
                code += b"\x48\x8b\xbb" + struct.pack("<i", 8 * at)  # mov rdi, [rbx + ..]
                code += b"\x48\x8b\xb3" + struct.pack("<i", 8 * (at + 1))  # mov rsi, [rbx + ..]
                code += b"\x48\xba" + struct.pack("<Q", step.nbytes)  # mov rdx, ..
                code += b"\x48\xb8" + struct.pack("<Q", _address("memcpy")) + b"\xff\xd0"  # mov rax, ..; call rax
            case _Product():
                code += _multiply(step, at, constants + step.parameters)
            case _Unless():
                code += b"\x48\x8b\x83" + struct.pack("<i", 8 * at)  # mov rax, [rbx + ..]
                if step.nbytes == 1:
                    jump(b"\x80\x38\x00\x0f\x84", step.label)  # cmp byte [rax], 0; jz
                else:
                    jump(b"\x83\x38\x00\x0f\x85", step.label)  # cmp dword [rax], 0; jnz
            case _Jump():
                jump(b"\xe9", step.label)  # jmp
            case _Label():
                labels[step.label] = len(code)
    code += b"\x31\xc0"  # xor eax, eax
    labels[end] = len(code)
    for at, label in jumps:
        code[at - 4 : at] = struct.pack("<i", labels[label] - at)
    return bytes(code + b"\x5b\xc3")  # pop rbx; ret


def _multiply(step: _Product, at: int, parameters: int) -> bytes:
    """The calls of BLAS for a product, whose addresses are the words from `at` on."""
    word = lambda i: struct.pack("<i", 8 * (at + i))
    code = bytearray()
    for i in range(3):
        code += b"\x48\x8b\x83" + word(i) + b"\x48\x89\x83" + word(3 + i)  # mov rax, [rbx + ..]; mov [rbx + ..], rax
    code += b"\x48\xc7\x83" + word(6) + struct.pack("<i", step.batch)  # mov qword [rbx + ..], ..
    again = len(code)
    code += b"\x48\x83\xec\x40" + b"\x48\xb8" + struct.pack("<Q", parameters)  # sub rsp, 64; mov rax, ..
    # Six arguments in registers: lea rdi, rsi, rdx, rcx, r8, r9 from rax.
    code += b"\x48\x89\xc7\x48\x8d\x70\x08\x48\x8d\x50\x10\x48\x8d\x48\x18\x4c\x8d\x40\x20\x4c\x8d\x48\x28"
    for position, (address, offset) in enumerate(((3, 0), (0, 48), (4, 0), (0, 56), (0, 64), (5, 0), (0, 72))):
        # mov r10, [rbx + ..] or lea r10, [rax + ..]; mov [rsp + ..], r10
        code += b"\x4c\x8b\x93" + word(address) if address else b"\x4c\x8d\x50" + bytes([offset])
        code += b"\x4c\x89\x54\x24" + bytes([8 * position])
    code += b"\x48\xb8" + struct.pack("<Q", _address(step.name)) + b"\xff\xd0"  # mov rax, ..; call rax
    code += b"\x48\x83\xc4\x40"  # add rsp, 64
    if step.batch > 1:
        for i, nbytes in enumerate(step.steps):
            code += b"\x48\x81\x83" + word(3 + i) + struct.pack("<i", nbytes)  # add qword [rbx + ..], ..
        code += b"\x48\xff\x8b" + word(6)  # dec qword [rbx + ..]
        code += b"\x0f\x85" + struct.pack("<i", again - len(code) - 6)  # jnz
    return bytes(code)
