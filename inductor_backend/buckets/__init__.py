"""Few executables for many sizes: a graph whose sizes vary, on tensors padded up to a bucket.

Input: an ATen graph with symbolic sizes and the option `buckets`. Output: a callable for AOTAutograd, or the operator
that can't be padded, and why. Law: results are those of the tensors as they are; a graph that can't promise that is
not padded.
"""

from inductor_backend.buckets.dress import Fit
from inductor_backend.buckets.rewrite import Padded, Refused, padded, shape_symbols
from inductor_backend.buckets.sizes import Buckets, bucket

__all__ = ["Buckets", "Fit", "Padded", "Refused", "bucket", "padded", "shape_symbols"]
