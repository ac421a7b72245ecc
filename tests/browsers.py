"""A browser for the tests of the page, where this machine has one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = (
    "no Chromium found: install one with `playwright install chromium`, or your system's own "
    "(on Debian: apt install chromium)"
)
# Chromium's sandbox does not work for root; the page under test is our own.
ARGUMENTS = ["--no-sandbox"] if os.geteuid() == 0 else []


def find_chromium(own: str) -> str | None:
    """Playwright's `own` where it has been installed, else the system's; None where there is neither."""
    if Path(own).exists():
        return own
    return next((found for command in _COMMANDS if (found := shutil.which(command))), None)
