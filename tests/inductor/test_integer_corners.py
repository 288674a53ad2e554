"""Whole numbers at their ends: wrap-around, division, remainders, shifts and powers, bit for bit eager's."""

import pytest
import torch
from inductor_checks import check


def pairs(dtype):
    """All pairs of the ends of a dtype, small numbers, and its width and neighbours."""
    info = torch.iinfo(dtype)
    numbers = {info.min, info.min + 1, -3, -2, -1, 0, 1, 2, 3, 7, 31, 63, 64, 65, info.max - 1, info.max}
    x = torch.tensor(sorted(n for n in numbers if info.min <= n <= info.max), dtype=dtype)
    return x.repeat_interleave(len(x)), x.repeat(len(x))


def arithmetic(x, y):
    with_numbers = x // 7, x // -3, x % -3, torch.fmod(x, 7), x**3, x**70, 5 - x, x.to(torch.int8), x.to(torch.uint8)
    sums = x.sum(), x.prod(), x.cumsum(0), x.cumprod(0), x.sum(dtype=x.dtype), x.amax(), x.argmin(), x.argmax()
    floats = x.float(), x.double(), x.bfloat16(), x / 3, x * 2.5, x < 2.5, torch.div(x, 2.5, rounding_mode="floor")
    return x + y, x - y, x * y, torch.add(x, y, alpha=3), -x, x.abs(), torch.gcd(x, y), with_numbers, sums, floats


def division(x, y):
    towards_zero = torch.div(x, torch.where(y == -1, 5, y), rounding_mode="trunc")  # eager dies of the smallest by -1
    return x // y, x % y, torch.fmod(x, y), towards_zero, torch.div(x, y)


def shifts_and_powers(x, y):
    shifts = x << y, x >> y, x << 70, x >> 70, x >> 3, torch.bitwise_right_shift(x, -1), x & y, x | y, x ^ y, ~x
    return shifts, torch.pow(x, y.clamp(0, 70)), torch.pow(3, y.clamp(0)), torch.ldexp(x, y.clamp(-60, 60))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_whole_numbers_at_their_ends(dtype):
    def everything(x, y, divisor):
        wrong = divisor == 0
        return arithmetic(x, y), division(x, torch.where(wrong, 1, divisor)), shifts_and_powers(x, y)

    x, y = pairs(dtype)
    check(everything, x, y, y, strides=False, fallback=True)
