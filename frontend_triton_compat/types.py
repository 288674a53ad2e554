"""Types of the tile language: dtypes, pointers, tiles.

Input: Triton's names (``fp32``, ``int1``, ...). Output: frozen values that the language, the IR and the emitters share.
Law: one row a dtype; a tile's shape is a tuple of ints, ``()`` for a scalar; every operand of an elementwise operation
has the same shape (broadcasts are explicit nodes).
Source of the dtype list: the public ``triton.language`` documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class dtype:
    """An element type, e.g. ``tl.float32`` is ``dtype("fp32")``."""

    name: str

    def __new__(cls, name: str) -> dtype:
        """The one object of this name: kernels ask ``x.dtype is tl.float32``."""
        if name not in _TABLE:
            raise ValueError(f"no such dtype: {name!r}; known: {', '.join(_TABLE)}")
        return _MADE.setdefault(name, super().__new__(cls))

    def __reduce__(self) -> tuple[type[dtype], tuple[str]]:
        return dtype, (self.name,)

    @property
    def kind(self) -> str:
        """``bool``, ``int``, ``uint`` or ``float`` (``void`` for no value)."""
        return _TABLE[self.name][0]

    @property
    def primitive_bitwidth(self) -> int:
        """Width in bits; 1 for ``int1``."""
        return _TABLE[self.name][1]

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory."""
        return max(1, self.primitive_bitwidth // 8)

    @property
    def numpy_name(self) -> str:
        """The dtype's name in NumPy, ml_dtypes and ``jax.numpy`` (``bool_`` for ``int1``)."""
        return _TABLE[self.name][2]

    @property
    def scalar(self) -> dtype:
        """The element type itself: tiles and scalars answer alike."""
        return self

    def is_floating(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind == "float"

    def is_int(self) -> bool:
        """Whether this is an integer type, ``int1`` included."""
        return self.kind in ("bool", "int", "uint")

    def is_bool(self) -> bool:
        """Whether this is ``int1``."""
        return self.kind == "bool"

    def is_int_signed(self) -> bool:
        """Whether this is a signed integer type."""
        return self.kind == "int"

    def is_int_unsigned(self) -> bool:
        """Whether this is an unsigned integer type (Triton counts ``int1`` among them)."""
        return self.kind in ("uint", "bool")

    @staticmethod
    def is_dtype(type_str: object) -> bool:
        """Whether this is the short name of an element type, such as ``fp32``."""
        return type_str in _TABLE

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """The other type: a scalar is its own element."""
        return element_ty

    def is_fp8(self) -> bool:
        """Whether this is one of the 8-bit floating-point types."""
        return self.name.startswith("fp8")

    def is_ptr(self) -> bool:
        """False: see `pointer_type`."""
        return False

    def is_block(self) -> bool:
        """False: see `block_type`."""
        return False

    @property
    def int_bitwidth(self) -> int:
        """Width of an integer type in bits."""
        return self.primitive_bitwidth

    @property
    def fp_mantissa_width(self) -> int:
        """Stored mantissa bits of a floating-point type."""
        return _FLOAT_FORMAT[self.name][0]

    @property
    def exponent_bias(self) -> int:
        """What is added to the exponent of a floating-point type when it is stored."""
        return _FLOAT_FORMAT[self.name][1]

    def is_standard_floating(self) -> bool:
        """Whether this is fp16, bf16, fp32 or fp64."""
        return self.name in ("fp16", "bf16", "fp32", "fp64")

    def get_int_min_value(self) -> int:
        """Smallest number of an integer type."""
        return -(1 << (self.primitive_bitwidth - 1)) if self.kind == "int" else 0

    def get_int_max_value(self) -> int:
        """Largest number of an integer type."""
        return (1 << (self.primitive_bitwidth - (self.kind == "int"))) - 1

    def __getattr__(self, name: str) -> Callable[[], bool]:
        # Triton has one predicate a type: is_fp16(), is_bf16(), is_int8(), is_uint32(), is_int1(), ...
        if name.startswith("is_") and name[3:] in _TABLE:
            return lambda: self.name == name[3:]
        raise AttributeError(f"dtype has no attribute {name!r}")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        # the name of the public object: fp16 is tl.float16, bf16 is tl.bfloat16
        return f"triton.language.{self.name.replace('fp', 'float').replace('bf', 'bfloat')}"


# name -> (kind, bits, name in numpy / ml_dtypes / jax.numpy)
_TABLE: dict[str, tuple[str, int, str]] = {
    "void": ("void", 0, "void"),
    "int1": ("bool", 1, "bool_"),
    "int8": ("int", 8, "int8"),
    "int16": ("int", 16, "int16"),
    "int32": ("int", 32, "int32"),
    "int64": ("int", 64, "int64"),
    "uint8": ("uint", 8, "uint8"),
    "uint16": ("uint", 16, "uint16"),
    "uint32": ("uint", 32, "uint32"),
    "uint64": ("uint", 64, "uint64"),
    "fp8e4nv": ("float", 8, "float8_e4m3fn"),
    "fp8e5": ("float", 8, "float8_e5m2"),
    "fp8e4b8": ("float", 8, "float8_e4m3fnuz"),
    "fp8e5b16": ("float", 8, "float8_e5m2fnuz"),
    "fp8e4b15": ("float", 8, "float8_e4m3b11fnuz"),
    "fp16": ("float", 16, "float16"),
    "bf16": ("float", 16, "bfloat16"),
    "fp32": ("float", 32, "float32"),
    "fp64": ("float", 64, "float64"),
}
_MADE: dict[str, dtype] = {}
# name -> (stored mantissa bits, exponent bias)
_FLOAT_FORMAT = {
    "fp8e4nv": (3, 7),
    "fp8e5": (2, 15),
    "fp8e4b8": (3, 8),
    "fp8e5b16": (2, 16),
    "fp8e4b15": (3, 15),
    "fp16": (10, 15),
    "bf16": (7, 127),
    "fp32": (23, 127),
    "fp64": (52, 1023),
}
ALL_DTYPES: tuple[dtype, ...] = tuple(dtype(n) for n in _TABLE if n != "void")
# fp8e4b15 is Triton's own format; the ml_dtypes type of its row only has its size
_BY_NUMPY = {d.numpy_name: d for d in ALL_DTYPES if d.name != "fp8e4b15"} | {"bool": dtype("int1")}


def from_numpy_name(name: str) -> dtype:
    """The dtype with this NumPy / ml_dtypes name (``bool`` and ``bool_`` are ``int1``).

    Raises:
        KeyError: Triton has no such type (complex, 4-bit, ...).
    """
    return _BY_NUMPY[name]


@dataclass(frozen=True)
class pointer_type:
    """A pointer to elements of one dtype."""

    element_ty: dtype
    address_space: int = field(default=1, compare=False)
    const: bool = field(default=False, compare=False)

    @property
    def kind(self) -> str:
        """``int``: as data, a pointer is its offset from the argument it points into."""
        return "int"

    @property
    def numpy_name(self) -> str:
        """``int64``: see `kind`."""
        return "int64"

    @property
    def scalar(self) -> pointer_type:
        """The pointer type itself."""
        return self

    @property
    def primitive_bitwidth(self) -> int:
        """Pointers are 64 bits wide."""
        return 64

    def is_ptr(self) -> bool:
        """True."""
        return True

    def is_floating(self) -> bool:
        """False."""
        return False

    def is_int(self) -> bool:
        """False."""
        return False

    def is_bool(self) -> bool:
        """False."""
        return False

    def is_block(self) -> bool:
        """False: see `block_type`."""
        return False

    def __str__(self) -> str:
        return f"pointer<{self.element_ty}>"


@dataclass(frozen=True)
class TileType:
    """Element type and shape of a value; the shape of a scalar is ``()``."""

    element: dtype | pointer_type
    shape: tuple[int, ...] = ()

    @property
    def is_pointer(self) -> bool:
        """Whether the elements are pointers."""
        return isinstance(self.element, pointer_type)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    def with_shape(self, shape: tuple[int, ...]) -> TileType:
        """The same elements in another shape."""
        return TileType(self.element, shape)

    def with_element(self, element: dtype | pointer_type) -> TileType:
        """The same shape with other elements."""
        return TileType(element, self.shape)

    def __str__(self) -> str:
        return f"{self.element}[{', '.join(map(str, self.shape))}]" if self.shape else str(self.element)


VOID = dtype("void")
INT1, INT8, INT16, INT32, INT64 = (dtype(n) for n in ("int1", "int8", "int16", "int32", "int64"))
UINT8, UINT16, UINT32, UINT64 = (dtype(n) for n in ("uint8", "uint16", "uint32", "uint64"))
FP16, BF16, FP32, FP64 = (dtype(n) for n in ("fp16", "bf16", "fp32", "fp64"))

# Triton hangs these lists on the class; test suites read them.
dtype.SINT_TYPES = ["int8", "int16", "int32", "int64"]  # type: ignore[attr-defined]
dtype.UINT_TYPES = ["int1", "uint8", "uint16", "uint32", "uint64"]  # type: ignore[attr-defined]
dtype.FP_TYPES = [d.name for d in ALL_DTYPES if d.kind == "float"]  # type: ignore[attr-defined]
dtype.STANDARD_FP_TYPES = ["fp16", "bf16", "fp32", "fp64"]  # type: ignore[attr-defined]
dtype.OTHER_TYPES = ["void"]  # type: ignore[attr-defined]
