"""Functions of higher layers that objects of lower layers offer as methods; the import of `goffish` sets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

run: Callable[..., Any]
open_series: Callable[..., Any]
