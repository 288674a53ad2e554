"""``python -m frontend_triton_compat`` and the console script ``torch-pallas``: see `frontend_triton_compat.cli`."""

import sys

from frontend_triton_compat.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
