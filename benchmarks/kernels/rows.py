"""Row kernels: softmax with rows dealt out to programs, RMS norm that saves its scale."""

import triton
import triton.language as tl


@triton.jit
def softmax(out, x, out_stride, x_stride, rows, columns, WIDTH: tl.constexpr):
    """Programs walk the rows in steps of the grid's size."""
    lane = tl.arange(0, WIDTH)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        z = tl.load(x + row * x_stride + lane, mask=lane < columns, other=-float("inf"))
        e = tl.exp(z - tl.max(z, axis=0))
        tl.store(out + row * out_stride + lane, e / tl.sum(e, axis=0), mask=lane < columns)


@triton.jit
def rms_norm(out, x, gain, scale, x_stride, out_stride, columns, eps, WIDTH: tl.constexpr):
    """One program a row; float32 inside, whatever the tensors hold."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, WIDTH)
    inside = lane < columns
    z = tl.load(x + row * x_stride + lane, mask=inside, other=0).to(tl.float32)
    g = tl.load(gain + lane, mask=inside, other=0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(z * z, axis=0) / columns + eps)
    tl.store(scale + row, inverse)
    tl.store(out + row * out_stride + lane, (z * inverse * g).to(out.dtype.element_ty), mask=inside)
