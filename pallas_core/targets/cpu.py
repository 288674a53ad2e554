"""What is known of the CPU as a target.

Kernels run through Pallas' interpreter inside one jitted XLA:CPU program. The cost model matters more than limits: a
grid step costs a copy of every operand, so one step on whole arrays is the fast form.
"""

from __future__ import annotations

#: Measured cost of a grid against plain jitted XLA: {steps: factor}; softmax 1024 x 1024 and matmul 256 cubed.
STEP_COST = {1: 1.0, 8: 3.4, 128: 104.0}
#: Every dtype that crosses between torch and jax runs on the CPU; 64-bit ones under a scoped x64 mode.
REFUSED_DTYPES: dict[str, str] = {}
