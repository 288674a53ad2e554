"""Rows of fla-core: recurrences, attention, and the modules beside them.

Input: nothing. Output: `ROWS`. Law: as in `table.py`; the formulas are in `fla_formulas.py`.
"""

from __future__ import annotations

from fla_attention import ATTENTION, OTHERS
from fla_modules import MODULES, TOOLS
from fla_states import RECURRENCES

NOTE = "Configurations are not measured here (`TORCH_PALLAS_AUTOTUNE=first`)."
ROWS = [*RECURRENCES, *ATTENTION, *OTHERS, *TOOLS, *MODULES]
