"""How a command fails."""

from __future__ import annotations

from rich.markup import escape


class Failure(Exception):
    """Ends the command with a message for the user."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status

    @property
    def markup(self) -> str:
        return escape(str(self))
