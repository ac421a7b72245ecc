"""What can go wrong before a model is on the disk."""

from __future__ import annotations


class ModelUnavailableError(RuntimeError):
    """The model could not be fetched or read; the message says what to do about it."""
