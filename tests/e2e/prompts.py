"""A prompt whose answer repeats it, so that lookup drafts all along."""

from __future__ import annotations

from orchestration.demo import PROMPTS

CHAT, CODE = (prompt.text for prompt in PROMPTS)
