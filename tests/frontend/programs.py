"""Random kernels as text: typed variables, nested control flow, affine and gathered accesses.

Law: a program has one meaning. Every program of the grid stores to elements of its own; loads stay inside the tensors;
loops end; floats are multiples of powers of two and are only added, compared and halved, so that no order of
operations changes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

WIDTH = 4
SLOTS = 4
INPUT = 24
#: variables by kind: 32-bit and 64-bit integers, floats, tiles of both
VARIABLES = {"i": 2, "l": 1, "f": 2, "t": 2, "q": 1}

HELPERS = """
@triton.jit
def clamp(v, low, high):
    if v < low:
        return low
    if v > high:
        return high
    return v


@triton.jit
def search(x, n, key):
    at = n * 0 - 1
    for k in range(6):
        if tl.load(x + k) == key:
            return n * 0 + k
        at += 1
    return at


@triton.jit
def pick(c, a, b=None):
    if b is None:
        return a
    return tl.where(c, a, b), tl.where(c, b, a)


"""


@dataclass
class Program:
    """A kernel's text with the launch that it is meant for."""

    source: str
    grid: tuple[int, ...]
    tensors: dict[str, torch.Tensor]
    numbers: dict[str, int] = field(default_factory=dict)


class Writer:
    """Writes statements; every choice is drawn."""

    def __init__(self, draw):
        self.draw = draw
        self.lines: list[str] = []
        self.depth = 1
        self.loops = 0  # run-time loops around the current statement, which may be left
        self.fresh = 0
        self.budget = 14

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def pick(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def name(self, hint: str) -> str:
        self.fresh += 1
        return f"{hint}{self.fresh}"

    def var(self, kind: str) -> str:
        return f"{kind}{self.number(0, VARIABLES[kind] - 1)}"

    # -- expressions: the type of each is that of its kind

    def i(self) -> str:
        """A 32-bit integer."""
        a, b, c = self.var("i"), self.var("i"), self.number(-5, 5)
        return self.pick(
            f"{a} + {b}", f"{a} - {c}", f"{a} * {self.number(-3, 3)}", f"{a} // {self.number(2, 5)}",
            f"{a} % {self.number(2, 7)}", f"tl.minimum({a}, {b})", f"tl.where({self.c()}, {a}, {b})", "p0 + zero",
            "p1 * 2 + zero", f"-{a}", f"{a} >> 1", f"{a} & 7", f"zero + {c}", f"tl.load(ix + {a} % 3 + 3)",
            f"tl.sum({self.var('q')}, 0)", f"tl.max({self.var('q')}, 0)", f"clamp({a}, zero - 3, {b})",
            f"search(ix, {a}, {b})", f"pick(p0 > 0, {a})", f"({self.var('l')} % 1000).to(tl.int32)",
            f"({a} if {self.c()} else {b})",
        )  # fmt: skip

    def l(self) -> str:  # noqa: E743
        """A 64-bit integer."""
        a = self.var("l")
        return self.pick(f"{a} + {self.var('i')}", f"{a} * 3", f"{a} - {self.number(0, 9)}", f"{a} // 7", "wide + p0")

    def f(self) -> str:
        """A float."""
        a, b, i = self.var("f"), self.var("f"), self.var("i")
        return self.pick(
            f"{a} + {b}", f"{a} - 0.25", f"{a} * 0.5", f"tl.maximum({a}, {b})", f"tl.abs({a})", f"-{a}",
            f"{i}.to(tl.float32) * 0.25", f"tl.load(fx + ({i} % 5 + 5))", f"tl.max({self.var('t')}, 0)",
            f"tl.min({self.var('t')}, 0)", f"tl.where({self.c()}, {a}, {b})", f"clamp({a}, {b}, {b} + 2.0)",
            f"({a} if {self.c()} else {b} + 1.0)",
        )  # fmt: skip

    def q(self) -> str:
        """A tile of 32-bit integers."""
        a = self.var("q")
        return self.pick(
            f"{a} + {self.var('i')}", f"lane + {self.var('i')}", f"{a} % {self.number(2, 7)}", f"{a} * 2 - lane",
            f"{self.number(0, 9)} - lane + {a} * 0", f"tl.where({self.m()}, {a}, lane)", f"tl.cumsum({a}, 0)",
            f"tl.load(ix + {self.inside()})",
        )  # fmt: skip

    def t(self) -> str:
        """A tile of floats."""
        a, b = self.var("t"), self.var("t")
        load = f"tl.load(fx + {self.name_of_index()}, mask={self.m()}, other={self.pick('0.0', '1.5')})"
        return self.pick(
            f"{a} + {b}", f"{a} * 0.5", f"{a} - {self.var('f')}", f"tl.maximum({a}, {b})",
            f"tl.where({self.m()}, {a}, {b})", f"{self.var('q')}.to(tl.float32) * 0.25", f"tl.abs({a})",
            f"{a} + tl.max({b}, 0)", f"pick({self.m()}, {a}, {b})[{self.number(0, 1)}]",
            f"tl.load(fx + {self.inside()})", load, load, f"tl.load(o + own + {self.slot()} * {WIDTH} + lane)",
        )  # fmt: skip

    def inside(self) -> str:
        """A tile of places inside the input."""
        i, c = self.var("i"), self.number(0, 3)
        return self.pick(
            f"(({i} % 8 + 8) + lane)", f"(p0 * {self.number(0, 3)} + lane * {self.number(0, 2)} + {c})",
            f"((({self.var('q')}) % 12 + 12) % {INPUT})", f"({INPUT - 1} - lane * 2 - p0)",
            f"((p0 * 2 + p1) * {WIDTH} % {INPUT - WIDTH} + lane)",
        )  # fmt: skip

    def name_of_index(self) -> str:
        """A tile of places that may lie outside: the mask of the load is extended."""
        index = self.pick(
            f"{self.var('i')} + lane", f"p0 * {WIDTH} + lane - 2", f"lane * 3 + {self.var('i')}", self.var("q"),
            f"{self.var('i')} * 2 - lane + p1",
        )  # fmt: skip
        name = self.name("at")
        self.put(f"{name} = {index}")
        self.bounds = f"({name} >= 0) & ({name} < {INPUT})"
        return name

    def c(self) -> str:
        """A condition."""
        i, j = self.var("i"), self.var("i")
        return self.pick(
            f"{i} > {self.number(-3, 3)}", f"{i} == {j}", f"{i} % 2 == 0", f"({i} > 0 and {j} < 4)", f"n > {i}",
            f"({i} < {j} or p1 == 1)", f"not ({i} <= {self.number(-2, 2)})", f"tl.load(ix + 2) > {i}",
            f"{self.var('l')} % 3 != 0", f"{self.var('f')} > {self.pick('0.5', '-1.0')}", f"p0 == {self.number(0, 3)}",
        )  # fmt: skip

    def m(self) -> str:
        """A tile of conditions; inside a load with a computed place, with its bounds."""
        mask = self.pick(
            f"(lane < {self.var('i')})", f"({self.var('q')} % 2 == 0)", f"(lane != {self.number(0, 3)})",
            f"({self.var('t')} > 0.5)", "(lane < n)", "(lane + p0 < 4)",
        )  # fmt: skip
        bounds, self.bounds = self.bounds, ""
        return f"({mask} & {bounds})" if bounds else mask

    bounds = ""

    def slot(self) -> str:
        """Which of the program's own slots."""
        return self.pick(*map(str, range(SLOTS)), f"(({self.var('i')} % {SLOTS} + {SLOTS}) % {SLOTS})")

    # -- statements

    def block(self, size: int) -> None:
        """One to `size` statements, one level deeper."""
        self.depth += 1
        for _ in range(self.number(1, size)):
            self.statement()
        self.depth -= 1

    def statement(self) -> None:
        """One statement."""
        self.budget -= 1
        kinds = ["assign"] * 6 + ["store"] * 2 + ["swap"]
        if self.budget > 0 and self.depth < 5:
            kinds += ["if"] * 3 + ["for"] * 3 + ["while"] + ["static"]
        if self.loops:
            kinds += ["leave"] * 2
        elif self.depth < 4:
            kinds += ["out"]
        getattr(self, f"s_{self.pick(*kinds)}")()

    def s_assign(self) -> None:
        kind = self.pick(*"iilffttq")
        value = getattr(self, kind)()
        if kind == "i" and self.loops:  # products in loops would soon be zeros
            value = f"({value}) % 1009"
        self.put(f"{self.var(kind)} = {value}")

    def s_swap(self) -> None:
        kind = self.pick("i", "f", "t")
        self.put(f"{kind}0, {kind}1 = {kind}1, {kind}0")

    def s_store(self) -> None:
        value = self.pick(
            self.var("t"), self.var("t"), f"{self.var('q')}.to(tl.float32)", f"lane * 0 + {self.var('f')}"
        )
        at = self.pick("lane", "lane", f"{WIDTH - 1} - lane")
        mask = self.pick("", "", f", mask={self.m()}")
        self.put(f"tl.store(o + own + {self.slot()} * {WIDTH} + {at}, {value}{mask})")

    def s_if(self) -> None:
        self.put(f"if {self.c()}:")
        self.block(2)
        if self.pick("", "elif"):
            self.put(f"elif {self.c()}:")
            self.block(2)
        if self.pick("", "else"):
            self.put("else:")
            self.block(2)

    def s_for(self) -> None:
        k = self.name("k")
        i, small = self.var("i"), f"({self.var('i')} % 4)"
        bounds = self.pick(
            str(self.number(0, 4)), f"{small}", f"0, {small} + 2", f"{small}, 4", f"{i}, {i} + 3", "0, zero + 3",
            f"0, n, {self.number(1, 3)}", "p0, 4", f"0, 5, {small} + 4", f"n, -{self.number(0, 4)}, -2",
            f"3, {small} - 2, -1",
        )  # fmt: skip
        self.put(f"for {k} in {self.pick('range', 'range', 'tl.range')}({bounds}):")
        self.depth += 1
        self.put(f"{self.var('i')} = zero + {k}" if self.number(0, 1) else f"i0 += {k}")
        self.depth -= 1
        self.inside_loop()
        if self.number(0, 5) == 0:
            self.put("else:")
            self.block(1)

    def s_while(self) -> None:
        w = self.name("w")
        self.put(f"{w} = zero + {self.pick('2', '4', 'p0', f'({self.var(chr(105))} % 5)')}")
        self.put(f"while {w} > 0{self.pick('', f' and {self.c()}')}:")
        self.depth += 1
        self.put(f"{w} -= 1")
        self.depth -= 1
        self.inside_loop()

    def s_static(self) -> None:
        k = self.name("s")
        self.put(f"for {k} in tl.static_range({self.pick('2', '3', '4, 0, -2')}):")
        self.depth += 1
        self.put(f"i1 += {k}")
        self.depth -= 1
        self.inside_loop()

    def inside_loop(self) -> None:
        self.loops += 1
        self.block(3)
        self.loops -= 1

    def s_leave(self) -> None:
        self.put(f"if {self.c()}:")
        self.depth += 1
        self.put(f"{self.var('f')} = {self.f()}")
        self.put(self.pick("break", "continue", "break", "continue", "return"))
        self.depth -= 1

    def s_out(self) -> None:
        self.put(f"if {self.c()}:")
        self.depth += 1
        if self.number(0, 1):
            self.s_store()
        self.put("return")
        self.depth -= 1


@st.composite
def programs(draw) -> Program:
    """Kernels with their launches."""
    w = Writer(draw)
    g0, g1 = w.number(1, 4), w.number(1, 2)
    w.put("p0 = tl.program_id(0)")
    w.put("p1 = tl.program_id(1)")
    w.put(f"own = (p0 * tl.num_programs(1) + p1) * {SLOTS * WIDTH}")
    w.put(f"lane = tl.arange(0, {WIDTH})")
    w.put("zero = tl.load(ix) * 0")
    w.put("wide = tl.load(lx)")
    first = {"i": "zero + {}", "l": "wide + {}", "f": "tl.load(fx + {})", "t": "tl.load(fx + lane + {})"}
    first["q"] = "lane * {} + zero"
    for kind, count in VARIABLES.items():
        for k in range(count):
            w.put(f"{kind}{k} = {first[kind].format(w.number(0, 5))}")
    for _ in range(w.number(2, 6)):
        w.statement()
    for slot, value in enumerate(("t0", "t1 + f0", "q0.to(tl.float32) + f1", "lane * 0 + i0 + i1 * 0.25")):
        w.put(f"tl.store(o + own + {slot * WIDTH} + lane, {value}{w.pick('', ', mask=lane < n', ', mask=t0 > 0.0')})")
    w.put("tl.store(lo + own + lane, lane + l0)")
    generator = torch.Generator().manual_seed(w.number(0, 99))
    tensors = {
        "fx": torch.randint(-16, 17, (INPUT,), generator=generator) / 4,
        "ix": torch.randint(-4, 9, (INPUT,), generator=generator, dtype=torch.int32),
        "lx": torch.tensor([2**33 + w.number(0, 9)]),
        "o": torch.full((g0 * g1 * SLOTS * WIDTH,), -5.0),
        "lo": torch.full((g0 * g1 * SLOTS * WIDTH,), -5),
    }
    body = "\n".join(w.lines)
    source = f"{HELPERS}@triton.jit\ndef kernel(fx, ix, lx, o, lo, n):\n{body}\n"
    return Program(source, (g0, g1), tensors, {"n": w.number(0, 6)})
