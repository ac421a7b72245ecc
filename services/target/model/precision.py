"""Names of the precisions, apart from the code that needs torch."""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "bf16", "fp32", "checkpoint"]
