"""Where one answer stands in its grammar."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from llguidance import LLMatcher

_NO_TOKEN = "response_format: nothing that this model's tokenizer can write may follow"


class GrammarState:
    """Advances by committed tokens alone. Rows behind draft tokens look ahead and leave no trace.

    A grammar that cannot go on fails its own answer and no other's: `failure` says why.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: int, end: int, eos_ids: Collection[int]) -> None:
        """`matcher` is at the start. `end`: the id that stands for the end in the matcher's own vocabulary.
        `eos_ids`: tokens of the model that end an answer; none of them is ever part of the grammar's text."""
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._end = end
        self._eos_ids = frozenset(eos_ids)
        self._ahead: list[int] = []  # consumed, but not committed
        self._allowed_V: torch.Tensor | None = None  # at the place where the matcher is
        self.failure = ""

    def fresh(self, eos_ids: Collection[int]) -> GrammarState:
        """The same grammar at its start, for another answer."""
        matcher = self._matcher.deep_copy()
        matcher.reset()
        return GrammarState(matcher, self._vocabulary, self._end, eos_ids)

    def allowed(self, drafts: Sequence[int]) -> torch.Tensor:
        """Tokens that may follow the committed ones and these drafts: bool [V], not to be changed.

        Behind the end of the text everything is, for nobody looks at those rows.
        """
        if not self._move_to(drafts):
            return torch.ones(self._vocabulary, dtype=torch.bool)
        if self._allowed_V is None:
            self._allowed_V = self._compute()
        return self._allowed_V

    def commit(self, token: int) -> None:
        if self.failure or token in self._eos_ids:
            return
        if self._ahead and self._ahead[0] == token:
            del self._ahead[0]  # where the matcher is has not changed, only what of it is certain
        elif self._move_to(()):
            self._consume(token)

    @property
    def is_complete(self) -> bool:
        """Whether nothing can follow the committed tokens but the end."""
        if self.failure or self._ahead:  # something has followed
            return False
        return self._matcher.is_stopped()

    def _move_to(self, drafts: Sequence[int]) -> bool:
        """False where the drafts lead past the end, or the grammar has failed."""
        if self.failure:
            return False
        common = 0
        while common < min(len(self._ahead), len(drafts)) and self._ahead[common] == drafts[common]:
            common += 1
        if back := len(self._ahead) - common:
            self._matcher.rollback(back)
            del self._ahead[common:]
            self._allowed_V = None
        for token in drafts[common:]:
            if token in self._eos_ids or self._matcher.is_stopped():
                return False
            if not self._consume(token):
                return False
            self._ahead.append(token)
        return True

    def _consume(self, token: int) -> bool:
        self._allowed_V = None
        if self._matcher.consume_token(token):
            return True
        self._fail()
        return False

    def _compute(self) -> torch.Tensor:
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            self._fail()
            return torch.ones(self._vocabulary, dtype=torch.bool)
        bits = np.unpackbits(packed, count=max(self._vocabulary, self._end + 1), bitorder="little")
        can_end = bool(bits[self._end])
        bits[self._end] = 0
        allowed_V = torch.from_numpy(bits[: self._vocabulary].astype(np.bool_))
        if can_end:
            allowed_V[list(self._eos_ids)] = True
        if not allowed_V.any():
            self.failure = _NO_TOKEN
            allowed_V.fill_(True)
        return allowed_V

    def _fail(self) -> None:
        reason = (self._matcher.get_error().splitlines() or ["stopped"])[0][:200]
        is_end = reason.startswith("NoExtension")
        self.failure = _NO_TOKEN if is_end else f"response_format: the answer cannot be continued by it ({reason})"
