"""`tl.extra.cuda.libdevice`: the same functions as `tl.extra.libdevice`."""

from frontend_triton_compat.language.extra.libdevice import *  # noqa: F403
from frontend_triton_compat.language.extra.libdevice import __all__  # noqa: F401
