"""Control flow in a graph: `cond`, `while_loop`, `scan`, `map`; attention by functions, regions that are called.

Input: a graph of the partitioner's that holds higher-order operators. Output: the same graph with operators written out
(`spelled.py`) or as nodes of ours (`flow.py`), and their source in a segment (`text.py`, over the functions of
`forms.py`). Law: a subgraph is planned and emitted by what plans and emits the graph around it; one that can't be
jitted keeps its operator in ATen, and says why.
"""

from inductor_backend.control.flow import collected, on_tensors, tidy
from inductor_backend.control.text import inline_of

__all__ = ["collected", "inline_of", "on_tensors", "tidy"]
