"""Arrays across the border: shared, copied or refused, and it says which.

Input: a torch tensor or a jax array in CPU memory. Output: the same values in the other library, sharing memory where
both libraries allow it. Law: values never change on the way (no narrowing, no lost sign, no lost gradient); silence
means shared memory, a copy is a note with a code, everything else is a diagnostic; and memory lives as long as either
side can reach it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.core
import numpy as np
import torch

from bridge import compat
from bridge.diagnostics import Diagnostic, Where, error, lookup, note
from bridge.dtypes import BY_JAX, BY_TORCH
from bridge.layout import classify
from bridge.readonly import ReadOnlyTensor, plain, read_only

#: XLA reads shared memory with vector loads: the address must be a multiple of this.
ALIGNMENT = 64
#: Types whose memory is what it seems. Parameters differ from tensors in name only.
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, ReadOnlyTensor})


@dataclass(frozen=True)
class Crossing:
    """How data would cross, from `crossing`.

    Attributes:
        how: ``shared``: the other library reads the same memory. ``copied``: a note is issued and the values are
            copied. ``refused``: a diagnostic is raised.
        code: the code of the note or diagnostic, "" when there is nothing to say.
        reason: the reason in words, "" when there is nothing to say.
    """

    how: Literal["shared", "copied", "refused"]
    code: str = ""
    reason: str = ""


@dataclass(frozen=True)
class _Finding:
    """Why data cannot be shared: the parts of a diagnostic that is not raised yet."""

    how: Literal["shared", "copied", "refused"]
    slug: str
    what: str
    why: str
    do: str | tuple[str, ...]

    def crossing(self) -> Crossing:
        return Crossing(self.how, lookup(self.slug).code, f"{self.what}: {self.why}")

    def diagnostic(self) -> Diagnostic:
        return error(self.slug, self.what, where=Where.caller(), why=self.why, do=self.do)

    def note(self) -> None:
        note(self.slug, self.what, where=Where.caller(), why=self.why, do=self.do)


def to_jax(t: torch.Tensor, copy: bool | None = None) -> jax.Array:
    """Hand a CPU tensor to jax.

    A shared array sees later in-place writes to the tensor (that is what makes a cached import of a parameter follow
    the optimiser). Computations of jax run in the background: wait for their results (``block_until_ready``) before
    you write to a tensor that they read. torch refuses to resize a tensor once it is shared, as after ``numpy()``.

    Args:
        t: a strided CPU tensor of any shape, 0-dim and empty ones included. It must not require grad, unless grad mode
            is off. 64-bit values stay 64-bit; while jax's x64 mode is off a note says that jax computes in 32.
        copy: None: share if possible, else copy with a note. False: share, or a diagnostic; a permuted tensor is
            shared with its layout, so jitted code first reorders it and ahead-of-time executables refuse it.
            True: a real copy, row-major; also takes a tensor from another device.

    Returns:
        An array on jax's CPU device with the tensor's shape and dtype.

    Raises:
        Diagnostic: ``grad-would-be-lost``, ``dtype-cannot-cross``, ``not-a-plain-tensor``, ``freed-storage``,
            ``other-device``; and with ``copy=False`` also ``misaligned-zero-copy``, ``strided-import``,
            ``lazy-conj-or-neg``.
    """
    if copy is None and _is_simple(t):
        return compat.share_for_good(t)
    _check_copy(copy)
    finding = _inspect_tensor(t, copy)
    if finding is not None and finding.how == "refused":
        raise finding.diagnostic()
    if type(t) is ReadOnlyTensor:
        t = plain(t)
    if copy or (finding is not None and finding.how == "copied"):
        # What resolves a lazy conjugate is a copy already; it must not be copied twice.
        source = t.detach().cpu()
        values = source.resolve_conj().resolve_neg()
        if values.data_ptr() == t.data_ptr() or not values.is_contiguous():
            values = values.clone(memory_format=torch.contiguous_format)
        share = compat.share_with_jax
    else:
        values, share = t, compat.share_for_good
    row = BY_TORCH[t.dtype]
    if finding is not None:
        finding.note()
    elif row.wide and not compat.x64_is_on():
        _narrow_compute(t.dtype).note()
    if not row.wide:
        return share(values)
    with compat.x64():
        return share(values)


def to_torch(a: jax.Array, copy: bool | None = None, mutable: bool = False) -> torch.Tensor:
    """Hand a jax array to torch; waits until it is computed.

    Args:
        a: an array on one CPU device (with ``copy=True``: on any devices that this process reaches).
        copy: None and False: share or a diagnostic, there is nothing in between. True: a copy, writable.
        mutable: whether torch may write to the shared memory. False: a `ReadOnlyTensor`, whose in-place operations
            raise ``read-only-share``. True: a plain tensor; a write changes the jax array under everybody who holds
            it, so say so only for an array that nobody else reads.

    Returns:
        A CPU tensor with the array's shape and dtype, without grad.

    Raises:
        Diagnostic: ``dtype-cannot-cross``, ``other-device``, ``deleted-array``, ``tracer-export``, ``sharded-array``.
    """
    _check_copy(copy)
    if mutable is not True and mutable is not False:
        raise error(
            "bad-argument",
            f"mutable is a {type(mutable).__name__}",
            where=Where.caller(),
            why="it is True (torch may write to the array's memory) or False.",
            do="mutable=False",
        )
    finding = _inspect_array(a, copy)
    if finding is not None:
        raise finding.diagnostic()
    if copy:
        if a.sharding.device_set != {compat.cpu_device()}:
            a = jax.device_put(np.asarray(a), compat.cpu_device())
        return compat.export_for_good(a).clone(memory_format=torch.contiguous_format)
    t = compat.export_for_good(a)
    return t if mutable else read_only(t)


def import_for_call(t: torch.Tensor) -> jax.Array:
    """A tensor as an operand of one jax call, imported the cheapest way; copied without a note where it must be.

    The array must not outlive the call: the tensor may drop its memory afterwards.

    Raises:
        Diagnostic: as `to_jax`.
    """
    if _is_simple(t):
        return compat.share_with_jax(t)
    finding = _inspect_tensor(t.detach() if type(t) in _PLAIN else t, None)
    if finding is not None and finding.how == "refused":
        raise finding.diagnostic()
    if finding is not None:
        source = plain(t).detach().resolve_conj().resolve_neg()
        t = source.clone(memory_format=torch.contiguous_format)
    with compat.x64() if BY_TORCH[t.dtype].wide else nullcontext():
        return compat.share_with_jax(t)


def crossing(value: torch.Tensor | jax.Array, copy: bool | None = None) -> Crossing:
    """How `value` would cross to the other library, without crossing.

    Args:
        value: a torch tensor or a jax array.
        copy: as in `to_jax` and `to_torch`.

    Returns:
        A `Crossing`. A 64-bit tensor is ``shared`` and still carries the code ``TPB101`` while jax's x64 mode is off.
    """
    _check_copy(copy)
    if isinstance(value, jax.Array):
        finding = _inspect_array(value, copy)
    else:
        finding = _inspect_tensor(value, copy)
        if finding is None and not copy and BY_TORCH[value.dtype].wide and not compat.x64_is_on():
            finding = _narrow_compute(value.dtype)
    if finding is not None:
        return finding.crossing()
    return Crossing("copied", "", "a copy was asked for") if copy else Crossing("shared")


def _check_copy(copy: object) -> None:
    # By identity: comparing an array or a tensor with True gives another one.
    if copy is not None and copy is not True and copy is not False:
        raise error(
            "bad-argument",
            f"copy is a {type(copy).__name__}",
            where=Where.caller(),
            why="it is None (share if possible), False (share or refuse) or True (copy).",
            do="copy=True",
        )


# torch -> jax ----------------------------------------------------------------------------------------------------


def _is_simple(t: Any) -> bool:
    """The common case, in the fewest questions: anything unusual is left to `_inspect_tensor`."""
    if type(t) not in _PLAIN or type(t) is ReadOnlyTensor:
        return False
    row = BY_TORCH.get(t.dtype)
    return (
        row is not None
        and row.crosses
        and not row.wide
        and t.is_cpu
        and t.layout is torch.strided
        and compat.has_storage(t)
        and t.is_contiguous()
        and t.data_ptr() % ALIGNMENT == 0
        and t.numel() != 0
        and compat.has_memory(t)
        and not (t.requires_grad and torch.is_grad_enabled())
        and not t.is_conj()
        and not t.is_neg()
        and not t.is_nested
        and not compat.has_tangent(t)
    )


def _inspect_tensor(t: Any, copy: bool | None) -> _Finding | None:
    """Why `t` cannot be shared (None: it can, or a copy was asked for and is possible)."""
    refusal = _refuse_kind(t) or _refuse_value(t, copy)
    if refusal is not None or copy:
        return refusal
    if type(t) is ReadOnlyTensor:
        t = plain(t)
    obstacle = _obstacle(t, copy)
    if obstacle is not None and copy is False:
        return _Finding("refused", obstacle.slug, obstacle.what, obstacle.why, obstacle.do)
    return obstacle


def _refuse_kind(t: Any) -> _Finding | None:
    """Tensors whose memory is not there or not what it seems."""

    def not_plain(what: str, why: str, do: str | tuple[str, ...]) -> _Finding:
        return _Finding("refused", "not-a-plain-tensor", what, why, do)

    if not isinstance(t, torch.Tensor):
        kind = f"{type(t).__module__}.{type(t).__qualname__}"
        do = "jax.numpy.asarray takes numpy arrays, lists and numbers" if not isinstance(t, jax.Array) else ()
        return _Finding("refused", "bad-argument", f"to_jax takes a torch tensor, not {kind}", "", do)
    if compat.is_transformed(t):
        return not_plain(
            "the tensor is being transformed by torch.func",
            "inside vmap or grad it stands for many tensors, or for a computation, and has no memory of its own.",
            "make the jax function a torch operator, which vmap and grad see through: bridge.jax_op('ns::name')",
        )
    if type(t) not in _PLAIN:
        return not_plain(
            f"the tensor is a {type(t).__name__}",
            "a subclass may keep its values elsewhere than in its memory (a fake tensor has none at all).",
            "hand over the plain tensor inside it; if the memory is the value: t.as_subclass(torch.Tensor)",
        )
    row = BY_TORCH.get(t.dtype)
    if row is None or not row.crosses:
        why, do = (row.why, row.do) if row else ("it is newer than this version of torch-pallas", ())
        return _Finding("refused", "dtype-cannot-cross", f"{t.dtype} has no counterpart in jax", why + ".", do)
    if t.layout is not torch.strided or t.is_nested:
        name = "nested" if t.is_nested else str(t.layout).removeprefix("torch.").removeprefix("_")
        return not_plain(
            f"the tensor's layout is {name}",
            "its values do not lie in one strided block of memory.",
            "make it dense: t.to_dense(), or t.to_padded_tensor(0) for a nested one",
        )
    return None


def _refuse_value(t: torch.Tensor, copy: bool | None) -> _Finding | None:
    """Plain tensors that cannot cross as they are."""
    if t.device.type == "meta":
        return _Finding(
            "refused",
            "not-a-plain-tensor",
            "the tensor is on the meta device",
            "it has a shape and no values.",
            "materialise it: t.to_empty(device='cpu'), or build the module without torch.device('meta')",
        )
    if not compat.is_lazy_zero(t) and not compat.has_memory(t):
        return _Finding(
            "refused",
            "freed-storage",
            f"the tensor's storage holds {t.untyped_storage().nbytes()} bytes, fewer than shape {tuple(t.shape)} needs",
            "it was resized: FSDP frees parameters this way between uses, and the values are gone.",
            "cross while the parameter is gathered, or resize the storage back and fill it again",
        )
    if not t.is_cpu and not copy:
        return _Finding(
            "refused",
            "other-device",
            f"the tensor is on {t.device}",
            "the bridge shares CPU memory; a copy from a device must be asked for.",
            ("bridge.to_jax(t, copy=True)", "bridge.to_jax(t.cpu())"),
        )
    if (t.requires_grad and torch.is_grad_enabled()) or compat.has_tangent(t):
        return _Finding(
            "refused",
            "grad-would-be-lost",
            "the tensor requires grad",
            "jax cannot carry torch's autograd graph: gradients would stop here, silently.",
            (
                "if no gradient has to pass: bridge.to_jax(t.detach()), or under torch.no_grad()",
                "to differentiate through a jax function, make it a torch operator: bridge.jax_op('ns::name')",
            ),
        )
    return None


def _obstacle(t: torch.Tensor, copy: bool | None) -> _Finding | None:
    """Why a tensor that may cross has to be copied for it."""
    if t.is_conj() or t.is_neg() or compat.is_lazy_zero(t):
        lazy = "conjugate" if t.is_conj() else "negation" if t.is_neg() else "zero"
        return _Finding(
            "copied",
            "lazy-conj-or-neg",
            f"the tensor is a lazy {lazy}",
            "torch applies it when it reads; the memory holds other values.",
            "materialise it once: t.resolve_conj().resolve_neg()",
        )
    layout = classify(t.shape, t.stride())
    if not layout.shareable or (layout.kind == "permuted" and copy is None):
        why = {
            "permuted": "jax computes on row-major arrays: it would reorder a shared one at every use.",
            "gapped": "jax arrays have no holes between their elements.",
            "overlapping": "two indices may mean one element, and jax arrays have each element once.",
        }[layout.kind]
        do = "make it row-major once: t.contiguous()"
        if layout.kind == "permuted":
            do = (do, "to share it with its layout: bridge.to_jax(t, copy=False)")
        return _Finding(
            "copied",
            "strided-import",
            f"shape {tuple(t.shape)} has strides {tuple(t.stride())}, {layout.kind}",
            why,
            do,
        )
    offset = t.data_ptr() % ALIGNMENT
    if offset and t.numel():
        return _Finding(
            "copied",
            "misaligned-zero-copy",
            f"the data starts {offset} bytes past a multiple of {ALIGNMENT}",
            f"XLA shares memory that is aligned to {ALIGNMENT} bytes; slices and rows of a tensor often are not.",
            "allow the copy with copy=None, or hand over the whole tensor and slice it in jax",
        )
    return None


def _narrow_compute(dtype: torch.dtype) -> _Finding:
    return _Finding(
        "shared",
        "int64-needs-x64",
        f"the array keeps {dtype}, and jax's x64 mode is off",
        "outside x64 mode most jax operations first narrow their 64-bit operands to 32 bits.",
        ("compute on it within: with jax.enable_x64(True)", "or hand over 32 bits: t.to(torch.int32 or torch.float32)"),
    )


# jax -> torch ----------------------------------------------------------------------------------------------------


def _inspect_array(a: Any, copy: bool | None) -> _Finding | None:
    """Why `a` cannot cross (None: it can)."""
    if isinstance(a, jax.core.Tracer):
        return _Finding(
            "refused",
            "tracer-export",
            "the array is being traced",
            "inside jit, grad or vmap an array is a symbol without values.",
            "call bridge.to_torch on the result, outside the traced function; or use jax.pure_callback",
        )
    if not isinstance(a, jax.Array):
        kind = f"{type(a).__module__}.{type(a).__qualname__}"
        do = "torch.as_tensor takes numpy arrays, lists and numbers" if not isinstance(a, torch.Tensor) else ()
        return _Finding("refused", "bad-argument", f"to_torch takes a jax array, not {kind}", "", do)
    row = BY_JAX.get(a.dtype)
    if row is None or not row.crosses:
        why, do = (
            (row.why, row.do) if row else ("it is not an array of numbers", "for a PRNG key: jax.random.key_data(a)")
        )
        return _Finding("refused", "dtype-cannot-cross", f"{a.dtype} has no counterpart in torch", why + ".", do)
    if a.is_deleted():
        return _Finding(
            "refused",
            "deleted-array",
            "the array was deleted",
            "it was donated to a jitted function (donate_argnums), or deleted by name.",
            "use the function's result, or don't donate what is still needed",
        )
    devices = a.sharding.device_set
    if len(devices) > 1 and not (copy and a.is_fully_addressable):
        return _Finding(
            "refused",
            "sharded-array",
            f"the array is spread over {len(devices)} devices",
            "a torch tensor lies on one device.",
            "gather it: bridge.to_torch(a, copy=True), or take one shard: a.addressable_data(0)",
        )
    if not copy and next(iter(devices)).platform != "cpu":
        return _Finding(
            "refused",
            "other-device",
            f"the array is on {next(iter(devices))}",
            "the bridge shares CPU memory; a copy from a device must be asked for.",
            "bridge.to_torch(a, copy=True)",
        )
    return None


compat.keep_out_of_graphs(
    globals(), "bridge hands memory to jax, which a torch graph can't record; bridge.jax_op makes a torch operator"
)
