"""matplotlib on machines without a display."""

from __future__ import annotations

from typing import Any


def headless_pyplot() -> Any:
    """Raises ImportError where matplotlib, which is no dependency, is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
