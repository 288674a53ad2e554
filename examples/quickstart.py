"""The main job, end to end: train with torch.compile and a Triton kernel, then ask a TPU's compiler about the kernel.

1. A small classifier learns scikit-learn's handwritten digits twice from the same start: in eager PyTorch, and compiled
   with ``backend="pallas"`` and a cross entropy written as Triton kernels. Both curves and accuracies are shown.
2. A tensor is handed to jax and back; the pointers show that nothing was copied.
3. The training run's own kernels are compiled for a TPU v5e that is not there, by the real TPU compiler.
4. A kernel that a TPU can't run shows what a diagnostic looks like.

Run it: ``python examples/quickstart.py``. It takes less than half a minute on two cores and needs no accelerator.
"""

import copy
import sys
import time
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import bridge
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl

BATCH = 128
TARGET = "tpu:v5e"

# ------------------------------------------------------------------------------------------- the loss, in Triton


@triton.jit
def cross_entropy_forward(logits, labels, loss, norm, classes, WIDTH: tl.constexpr):
    """One program a row: loss[row] = log(sum(exp(z))) - z[label]."""
    row = tl.program_id(0)
    col = tl.arange(0, WIDTH)
    z = tl.load(logits + row * classes + col, mask=col < classes, other=-float("inf"))
    top = tl.max(z, axis=0)
    log_sum = top + tl.log(tl.sum(tl.exp(z - top), axis=0))
    hit = tl.sum(tl.where(col == tl.load(labels + row), z, 0.0), axis=0)
    tl.store(norm + row, log_sum)
    tl.store(loss + row, log_sum - hit)


@triton.jit
def cross_entropy_backward(logits, labels, norm, upstream, grad, classes, WIDTH: tl.constexpr):
    """One program a row: grad[row] = (softmax(z) - onehot(label)) * upstream[row]."""
    row = tl.program_id(0)
    col = tl.arange(0, WIDTH)
    inside = col < classes
    z = tl.load(logits + row * classes + col, mask=inside, other=-float("inf"))
    p = tl.exp(z - tl.load(norm + row))
    p = tl.where(col == tl.load(labels + row), p - 1.0, p)
    tl.store(grad + row * classes + col, p * tl.load(upstream + row), mask=inside)


class CrossEntropy(torch.autograd.Function):
    """Cross entropy per row, forward and backward in Triton. Logits (rows, classes), labels int32 (rows,)."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Losses, one a row."""
        rows, classes = logits.shape
        loss, norm = torch.empty(rows), torch.empty(rows)
        cross_entropy_forward[(rows,)](logits, labels, loss, norm, classes, WIDTH=triton.next_power_of_2(classes))
        ctx.save_for_backward(logits, labels, norm)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The logits' gradient."""
        logits, labels, norm = ctx.saved_tensors
        rows, classes = logits.shape
        grad = torch.empty_like(logits)
        width = triton.next_power_of_2(classes)
        cross_entropy_backward[(rows,)](logits, labels, norm, upstream.contiguous(), grad, classes, WIDTH=width)
        return grad, None


def triton_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy by the Triton kernels."""
    return CrossEntropy.apply(logits, labels).mean()


def eager_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy by PyTorch."""
    return torch.nn.functional.cross_entropy(logits, labels.long())


@triton.jit
def total_loss(loss, total, BLOCK: tl.constexpr):
    """The sum of all losses by atomics: fine on a GPU, without meaning on a TPU."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(loss + at), axis=0))


# ------------------------------------------------------------------------------------------------- the training


def digits() -> tuple[torch.Tensor, ...]:
    """1797 images of 8x8 pixels, split in 3:1: train x, test x, train y, test y."""
    x, y = load_digits(return_X_y=True)
    split = train_test_split(x / 16.0, y, test_size=0.25, random_state=0, stratify=y)
    kinds = (torch.float32, torch.float32, torch.int32, torch.int32)
    return tuple(torch.tensor(part, dtype=kind) for part, kind in zip(split, kinds))


def classifier() -> torch.nn.Module:
    """A small convolutional net."""
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def train(model: Any, parameters: Any, loss_of: Any, data: Any, epochs: int, name: str) -> tuple[list[float], float]:
    """Train, then test.

    Returns:
        The mean loss of every epoch, and the accuracy on the test images.
    """
    x, test_x, y, test_y = data
    # The compiled model and the Triton loss are two calls: a Triton launch inside a compiled function is not inlined
    # into its graph yet.
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    shuffle = torch.Generator().manual_seed(0)
    model.train()
    curve = []
    for epoch in range(epochs):
        total, steps = 0.0, 0
        for rows in torch.randperm(len(x), generator=shuffle)[: len(x) // BATCH * BATCH].split(BATCH):
            loss = loss_of(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        curve.append(total / steps)
        progress(name, epoch + 1, epochs, curve[-1])
    model.eval()
    with torch.no_grad():
        right = model(test_x).argmax(1) == test_y
    return curve, right.float().mean().item()


def progress(name: str, done: int, of: int, loss: float) -> None:
    """A line that rewrites itself on a terminal; a short line now and then elsewhere."""
    if sys.stderr.isatty():
        print(
            f"\r{name}: epoch {done}/{of}, loss {loss:.4f} ",
            end="\n" if done == of else "",
            file=sys.stderr,
            flush=True,
        )
    elif done in (1, of) or done % 10 == 0:
        print(f"{name}: epoch {done}/{of}, loss {loss:.4f}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------ the other parts


def prove_sharing() -> bool:
    """Hand a tensor to jax and back, and compare addresses."""
    t = torch.arange(8, dtype=torch.float32)
    a = bridge.to_jax(t)
    back = bridge.to_torch(a)
    t[0] = 42.0
    shared = a.unsafe_buffer_pointer() == t.data_ptr() == back.data_ptr() and float(a[0]) == float(back[0]) == 42.0
    print(
        f"  torch {t.data_ptr():#x} = jax {a.unsafe_buffer_pointer():#x} = torch again {back.data_ptr():#x}: {shared}"
    )
    return shared


def ask_the_tpu_compiler() -> dict[str, Any]:
    """Compile the training's kernels for a v5e that is not there, and show one that can't be.

    Returns:
        Kernel name -> `Verdict`; without the TPU compiler only of the kernel that is refused before it.
    """
    rows, classes = 8192, 1024
    width = triton.next_power_of_2(classes)
    z, y, v = torch.empty(rows, classes), torch.empty(rows, dtype=torch.int32), torch.empty(rows)
    forward = cross_entropy_forward[(rows,)]
    backward = cross_entropy_backward[(rows,)]
    verdicts = {
        "forward": forward.check(z, y, v, v.clone(), classes, WIDTH=width, target=TARGET),
        "backward": backward.check(z, y, v, v.clone(), z.clone(), classes, WIDTH=width, target=TARGET),
    }
    if any(verdict.slug == "missing-dependency" for verdict in verdicts.values()):
        print("  the TPU compiler is not installed; get it with: pip install 'torch-pallas[tpu]'")
        verdicts = {}
    for verdict in verdicts.values():
        print(f"  {verdict}")
        if verdict.static:
            figures = verdict.static
            print(f"    static: {figures['hbm_bytes'] / 2**20:.1f} MiB through HBM, {figures['spills']} spills")
    verdicts["atomic"] = total_loss[(rows // 1024,)].check(v, torch.zeros(1), BLOCK=1024, target=TARGET)
    print("\nA kernel that a TPU can't run:\n")
    print(verdicts["atomic"].message)
    return verdicts


def main(epochs: int = 25) -> dict[str, Any]:
    """Run the four parts and print a table.

    Args:
        epochs: passes over the training images.

    Returns:
        Curves, accuracies, the verdicts and whether memory was shared.
    """
    start = time.perf_counter()
    data = digits()
    torch.manual_seed(0)
    eager = classifier()
    ours = copy.deepcopy(eager)
    compiled = torch.compile(ours, backend="pallas")
    print(f"Training on {len(data[0])} digits, {epochs} epochs, twice from the same start")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a net this small is slower on two
    try:
        curve_eager, accuracy_eager = train(eager, eager.parameters(), eager_loss, data, epochs, "eager ")
        curve, accuracy = train(compiled, ours.parameters(), triton_loss, data, epochs, "pallas")
    finally:
        torch.set_num_threads(threads)

    print("\n  epoch   loss, eager   loss, pallas + Triton   difference")
    for epoch in sorted({0, 1, 2, 4, 9, 19, epochs - 1} & set(range(epochs))):
        a, b = curve_eager[epoch], curve[epoch]
        print(f"  {epoch + 1:5d} {a:13.6f} {b:23.6f} {abs(a - b):12.1e}")
    print(f"  accuracy on {len(data[1])} unseen digits: eager {accuracy_eager:.2%}, pallas + Triton {accuracy:.2%}")

    print("\nThe same memory on both sides, by address")
    shared = prove_sharing()

    print(
        "\nThe same kernels, compiled by the real compiler for a TPU v5e that is not there. The figures are read from"
    )
    print("its schedule; for memory-bound kernels they were not checked against a chip.")
    verdicts = ask_the_tpu_compiler()

    print("\n  summary")
    largest = max(abs(a - b) for a, b in zip(curve_eager, curve))
    rows = [
        ("test accuracy", f"{accuracy:.2%} (eager {accuracy_eager:.2%})"),
        ("largest difference of the loss curves", f"{largest:.1e}"),
        ("torch and jax share memory", "yes" if shared else "no"),
        *((f"{TARGET}, {name} kernel", f"{v.verdict} {v.code} {v.slug}".strip()) for name, v in verdicts.items()),
        ("time", f"{time.perf_counter() - start:.0f} s"),
    ]
    for name, value in rows:
        print(f"  {name:38s} {value}")
    return {
        "curve": curve,
        "curve_eager": curve_eager,
        "accuracy": accuracy,
        "accuracy_eager": accuracy_eager,
        "shared": shared,
        "verdicts": verdicts,
    }


if __name__ == "__main__":
    main()
