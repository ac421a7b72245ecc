"""How a command fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape


class Failure(Exception):
    """Ends the command with a message for the user."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status

    @property
    def markup(self) -> str:
        return escape(str(self))


@contextmanager
def failures_of_training() -> Iterator[None]:
    """Mistakes in what was given, and data that is not installed, end the command with their message."""
    from services.training.synthesis.evaluation import DataUnavailableError

    try:
        yield
    except (DataUnavailableError, ValueError) as error:
        raise Failure(str(error)) from error
