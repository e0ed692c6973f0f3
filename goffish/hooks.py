"""Functions of higher layers that lower layers offer as methods; set by the import of `goffish`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

run: Callable[..., Any]
open_series: Callable[..., Any]
