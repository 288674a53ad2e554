"""Random kernels as text: typed variables, nested control flow, affine and gathered accesses.

Law: a program has one meaning. Every program of the grid stores to elements of its own; loads stay inside the tensors;
loops end; floats are multiples of powers of two and are only added, compared and halved, so that no order of
operations changes a bit. What the interpreter can't do (`~` of an unsigned number) is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

WIDTH = 4
SLOTS = 4
INPUT = 24
MOST = 60  # statements of a program

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


@triton.jit
def power(x, k: tl.constexpr):
    if k == 0:
        return x * 0 + 1
    else:
        return x * power(x, k - 1) % 1009


@triton.jit
def longest(pair, i, f):
    for k in range(3):
        if pair[0] > i + k:
            return pair
        pair = (pair[0] + 1, pair[1] * 0.5 + f)
    return i, f


"""

#: rule -> alternatives; {RULE} is expanded, {2..7} is a number. Capitals are variables of a kind.
GRAMMAR = {
    "I": "i0 | i1",  # int32
    "L": "l0",  # int64
    "U": "u0",  # uint32
    "F": "f0 | f1",  # fp32
    "T": "t0 | t1",  # tile of fp32
    "Q": "q0",  # tile of int32
    "H": "h0",  # tile of int8
    "M": "m0",  # tile of fp32 in rows
    "i": "{I} + {I} | {I} - {-5..5} | {I} * {-3..3} | {I} // {2..5} | {I} % {2..7} | tl.minimum({I}, {I}) | -{I}"
    " | tl.where({c}, {I}, {I}) | p0 + zero | p1 * 2 + zero | {I} >> 1 | {I} & 7 | zero + {-5..5} | pair[0] | place"
    " | tl.load(ix + {I} % 3 + 3) | tl.sum({Q}, 0) | tl.max({Q}, 0) | clamp({I}, zero - 3, {I}) | search(ix, {I}, {I})"
    " | pick(p0 > 0, {I}) | ({L} % 1000).to(tl.int32) | ({I} if {c} else {I}) | power({I} % 10, {0..3})"
    " | tl.max({H}, 0).to(tl.int32) | ({U} % 100).to(tl.int32)",
    "l": "{L} + {I} | {L} * 3 | {L} - {0..9} | {L} // 7 | wide + p0",
    "u": "{U} + 3 | {U} * 5 | {U} >> 1 | {U} ^ {I}.to(tl.uint32) | {U} // 7 | {U} % 1000 | {I}.to(tl.uint32)"
    " | tl.where({c}, {U}, {U} << 2)",
    "f": "{F} + {F} | {F} - 0.25 | {F} * 0.5 | tl.maximum({F}, {F}) | tl.abs({F}) | -{F} | {I}.to(tl.float32) * 0.25"
    " | tl.load(fx + ({I} % 5 + 5)) | tl.max({T}, 0) | tl.min({T}, 0) | tl.where({c}, {F}, {F}) | pair[1]"
    " | clamp({F}, {F}, {F} + 2.0) | ({F} if {c} else {F} + 1.0) | tl.max(tl.max({M}, 1), 0)",
    "h": "{H} + {H} | {H} * 3 | -{H} | {Q}.to(tl.int8) | tl.load(bx + {inside}) | tl.where({mask}, {H}, {H} + 100)"
    " | {H} >> 1 | {H} % 7",
    "m": "{M} + {T}[:, None] | {M} * 0.5 | tl.where({mask}[:, None], {M}, {T}[:, None]) | {M} - tl.sum({M}, 1)[:, None]"
    " | tl.load(fx + ({I} % 8 + 8) + lane[:, None] * 2 + two[None, :]) | tl.maximum({M}, two[None, :])"
    " | tl.load(fx + p0 + lane[:, None] + two[None, :] * 4, mask={mask}[:, None], other=1.0)",
    "q": "{Q} + {I} | lane + {I} | {Q} % {2..7} | {Q} * 2 - lane | {0..9} - lane + {Q} * 0 | tl.load(ix + {inside})"
    " | tl.where({mask}, {Q}, lane) | tl.cumsum({Q}, 0) | {H}.to(tl.int32)",
    "t": "{T} + {T} | {T} * 0.5 | {T} - {F} | tl.maximum({T}, {T}) | tl.where({mask}, {T}, {T}) | tl.abs({T})"
    " | {Q}.to(tl.float32) * 0.25 | {T} + tl.max({T}, 0) | pick({mask}, {T}, {T})[{0..1}] | tl.load(fx + {inside})"
    " | tl.load(o + own + {slot} * 4 + lane) | tl.sum({M}, 1) | tl.min({M}, 1)"
    " | tl.load(fx + {any}, mask={mask} & ({any} >= 0) & ({any} < 24), other={other})"
    " | tl.load(at + lane, mask=(place + lane >= 0) & (place + lane < 24), other=0.0)",
    "other": "0.0 | 1.5",
    "inside": "(({I} % 8 + 8) + lane) | (p0 * {0..3} + lane * {0..2} + {0..3}) | (({Q} % 12 + 12) % 24)"
    " | (23 - lane * 2 - p0) | ((p0 * 2 + p1) * 4 % 20 + lane)",
    "outside": "{I} + lane | p0 * 4 + lane - 2 | lane * 3 + {I} | {Q} | {I} * 2 - lane + p1",
    "c": "{I} > {-3..3} | {I} == {I} | {I} % 2 == 0 | ({I} > 0 and {I} < 4) | ({I} < {I} or p1 == 1) | n > {I}"
    " | not ({I} <= {-2..2}) | tl.load(ix + 2) > {I} | {L} % 3 != 0 | {F} > 0.5 | {F} < -1.0 | p0 == {0..3} | {U} > 9",
    "mask": "(lane < {I}) | ({Q} % 2 == 0) | (lane != {0..3}) | ({T} > 0.5) | (lane < n) | (lane + p0 < 4) | ({H} > 3)",
    "slot": "0 | 1 | 2 | 3 | (({I} % 4 + 4) % 4)",
    "small": "({I} % 4)",
    "range": "range | range | tl.range",
    "bounds": "{0..4} | {small} | 0, {small} + 2 | {small}, 4 | {I}, {I} + 3 | 0, zero + 3 | 0, n, {1..3} | p0, 4"
    " | 0, 5, {small} + 4 | n, -{0..4}, -2 | 3, {small} - 2, -1",
    "times": "zero + 2 | zero + 4 | zero + p0 | zero + ({I} % 5)",
    "and": " |  and {c}",
    "store": "lane, {T} | lane, {T}, mask={mask} | 3 - lane, {T} | lane, {Q}.to(tl.float32) | lane, lane * 0 + {F}",
    "pair": "({I}, {F}) | longest(pair, {I}, {F}) | (pair[0] + {I}, pair[1])",
    "step": "1 | 2 | -3 | ({I} % 3)",
    "few": "3 | n | {small} | p0 + 1",
    "row": "tl.load(fx + K * {0..2} + lane + p0)",
    "folded": "{T} += {row} | {T} = tl.maximum({T}, {row}) | {I} += K | tl.store(o + own + (K % 4) * 4 + lane, {row})",
    "exit": "break | continue | break | continue | return",
}
_RULES = {name: [part.strip() for part in text.split(" | ")] for name, text in GRAMMAR.items()}
_RULES["and"] = ["", " and {c}"]
_PLACE = re.compile(r"\{(\w+|-?\d+\.\.-?\d+)\}")


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
        self.loops = 0
        self.fresh = 0
        self.budget = 16  # statements with statements inside

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def put(self, template: str) -> None:
        """A line; its places are filled in."""
        if "{any}" in template:
            template = template.replace("{any}", self.bound("{outside}"))
        self.lines.append("    " * self.depth + self.fill(template))

    def bound(self, template: str) -> str:
        """The name of a value."""
        self.fresh += 1
        self.put(f"v{self.fresh} = {template}")
        return f"v{self.fresh}"

    def fill(self, template: str) -> str:
        """A template with its places filled in."""
        while (place := _PLACE.search(template)) is not None:
            rule = place[1]
            if ".." in rule:
                low, high = map(int, rule.split(".."))
                text = str(self.number(low, high))
            elif rule == "any":
                text = self.bound("{outside}")
                template = template.replace("{any}", text)
                continue
            else:
                text = self.draw(st.sampled_from(_RULES[rule]))
            template = template[: place.start()] + text + template[place.end() :]
        return template

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
        kinds = ["assign"] * 6 + ["store"] * 2 + ["swap", "pair", "advance"]
        if self.budget > 0 and self.depth < 5:
            kinds += ["if"] * 3 + ["for"] * 3 + ["while", "unrolled", "fold"]
        if self.loops and len(self.lines) < MOST:
            kinds += ["leave"] * 2
        elif self.depth < 4:
            kinds += ["out"]
        getattr(self, f"s_{self.draw(st.sampled_from(kinds))}")()

    def s_assign(self) -> None:
        kind = self.draw(st.sampled_from("iiluffttqhm"))
        value = self.fill(f"{{{kind}}}")
        if kind == "i" and self.loops:  # products in loops would soon be zeros
            value = f"({value}) % 1009"
        self.put(f"{{{kind.upper()}}} = {value}")

    def s_swap(self) -> None:
        kind = self.draw(st.sampled_from("ift"))
        self.put(f"{kind}0, {kind}1 = {kind}1, {kind}0")

    def s_pair(self) -> None:
        self.put("pair = {pair}")

    def s_advance(self) -> None:
        self.put("step = zero + {step}")
        self.put("at += step")
        self.put("place += step")

    def s_store(self) -> None:
        self.put("tl.store(o + own + {slot} * 4 + {store})")

    def s_if(self) -> None:
        self.put("if {c}:")
        self.block(2)
        for word in ("elif {c}:", "else:"):
            if self.number(0, 1):
                self.put(word)
                self.block(2)

    def s_for(self) -> None:
        self.fresh += 1
        k = f"k{self.fresh}"
        self.put(f"for {k} in {{range}}({{bounds}}):")
        self.depth += 1
        self.put(f"{{I}} = zero + {k}" if self.number(0, 1) else f"{{I}} += {k}")
        self.depth -= 1
        self.inside_loop()
        if self.number(0, 5) == 0:
            self.put("else:")
            self.block(1)

    def s_fold(self) -> None:
        """A loop that only adds up, or only stores."""
        self.fresh += 1
        k = f"k{self.fresh}"
        self.put(f"for {k} in range({{few}}):")
        self.depth += 1
        self.put(self.fill("{folded}").replace("K", k))
        self.depth -= 1

    def s_while(self) -> None:
        w = self.bound("{times}")
        self.put(f"while {w} > 0{{and}}:")
        self.depth += 1
        self.put(f"{w} -= 1")
        self.depth -= 1
        self.inside_loop()

    def s_unrolled(self) -> None:
        self.fresh += 1
        self.put(f"for k{self.fresh} in tl.static_range({self.draw(st.sampled_from(('2', '3', '4, 0, -2')))}):")
        self.depth += 1
        self.put(f"i1 += k{self.fresh}")
        self.depth -= 1
        self.inside_loop()

    def inside_loop(self) -> None:
        self.loops += 1
        self.block(3)
        self.loops -= 1

    def s_leave(self) -> None:
        self.put("if {c}:")
        self.depth += 1
        self.put("{F} = {f}")
        self.put("{exit}")
        self.depth -= 1

    def s_out(self) -> None:
        self.put("if {c}:")
        self.depth += 1
        if self.number(0, 1):
            self.s_store()
        self.put("return")
        self.depth -= 1


BEGIN = """
p0 = tl.program_id(0)
p1 = tl.program_id(1)
own = (p0 * tl.num_programs(1) + p1) * 16
lane = tl.arange(0, 4)
two = tl.arange(0, 2)
zero = tl.load(ix) * 0
wide = tl.load(lx)
at = fx + p0
place = zero + p0
pair = (zero, tl.load(fx))
i0 = zero + {0..5}
i1 = zero + {0..5}
l0 = wide + {0..5}
u0 = tl.load(ux + {0..5})
f0 = tl.load(fx + {0..5})
f1 = tl.load(fx + {0..5})
t0 = tl.load(fx + lane + {0..5})
t1 = tl.load(fx + lane + {0..5})
q0 = lane * {0..5} + zero
h0 = tl.load(bx + lane + {0..5})
m0 = tl.load(fx + {0..5} + lane[:, None] * 2 + two[None, :])
"""
END = """
tl.store(o + own + lane, t0 + tl.sum(m0, 1))
tl.store(o + own + 4 + lane, t1 + f0, mask=lane < n)
tl.store(o + own + 8 + lane, q0.to(tl.float32) + f1 + h0, mask=t0 > 0.0)
tl.store(o + own + 12 + lane, lane * 0 + i0 + i1 * 0.25)
tl.store(o + own + 4 + lane, pair[1], mask=t1 < 0.0)
tl.store(lo + own + lane, lane + l0 + u0)
tl.store(lo + own + 4 + lane, lane * pair[0] + place)
"""


@st.composite
def programs(draw) -> Program:
    """Kernels with their launches."""
    w = Writer(draw)
    grid = w.number(1, 4), w.number(1, 2)
    for line in BEGIN.strip().splitlines():
        w.put(line)
    for _ in range(w.number(4, 9)):
        w.statement()
    for line in END.strip().splitlines():
        w.put(line)
    generator = torch.Generator().manual_seed(w.number(0, 99))
    size = grid[0] * grid[1] * SLOTS * WIDTH
    tensors = {
        "fx": torch.randint(-16, 17, (INPUT,), generator=generator) / 4,
        "ix": torch.randint(-4, 9, (INPUT,), generator=generator, dtype=torch.int32),
        "lx": torch.tensor([2**33 + w.number(0, 9)]),
        "bx": torch.randint(-128, 128, (INPUT,), generator=generator, dtype=torch.int8),
        "ux": torch.randint(0, 2**32, (INPUT,), generator=generator).to(torch.uint32),
        "o": torch.full((size,), -5.0),
        "lo": torch.full((size,), -5),
    }
    body = "\n".join(w.lines)
    source = f"{HELPERS}@triton.jit\ndef kernel({', '.join(tensors)}, n):\n{body}\n"
    return Program(source, grid, tensors, {"n": w.number(0, 6)})
