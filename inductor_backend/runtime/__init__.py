"""One call of a compiled graph: tensors in, one dispatch per jitted segment, tensors out."""

from inductor_backend.runtime.assembly import Assembly, assemble, our_code
from inductor_backend.runtime.slots import HELD

__all__ = ["HELD", "Assembly", "assemble", "our_code"]
