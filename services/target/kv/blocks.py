"""Who holds which KV block, and which blocks hold a known prefix. Pure bookkeeping.

A full block of committed tokens is known by a hash of its tokens, of all before
it and of whose they are. When nobody holds it any more it stays, the least recently used
first in line to be taken for something else.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from services.target.model.spec import BLOCK

ROOT = b""


def root_of(tenant: str) -> bytes:
    """What the first block of a tenant's text follows: so nobody finds, by how fast an answer begins, what others
    have asked."""
    return hashlib.blake2b(tenant.encode(), digest_size=16, person=b"draftfleet/root").digest() if tenant else ROOT


def block_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    return hashlib.blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


class BlockManager:
    def __init__(self, num_blocks: int, *, prefix_cache: bool = True) -> None:
        self.num_blocks = num_blocks
        self._prefix_cache = prefix_cache
        self._unused = list(range(num_blocks - 1, -1, -1))
        self._holders = [0] * num_blocks
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # known, held by nobody; oldest first

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can give."""
        return len(self._unused) + len(self._idle)

    def allocate(self) -> int | None:
        """A block of undefined content, or None when every block is held."""
        if self._unused:
            block = self._unused.pop()
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            del self._block_of[self._hash_of.pop(block)]
        else:
            return None
        self._holders[block] = 1
        return block

    def match(self, tokens: Sequence[int], root: bytes = ROOT) -> list[tuple[int, bytes]]:
        """Takes hold of the known blocks that tokens[:-1] starts with: (block, hash) each.

        Only those that follow the same `root` are found. The last token is always left to compute, since its
        logits are wanted.
        """
        found: list[tuple[int, bytes]] = []
        if not self._prefix_cache:
            return found
        parent = root
        for start in range(0, (len(tokens) - 1) // BLOCK * BLOCK, BLOCK):
            parent = block_hash(parent, tokens[start : start + BLOCK])
            block = self._block_of.get(parent)
            if block is None:
                break
            self._idle.pop(block, None)
            self._holders[block] += 1
            found.append((block, parent))
        return found

    def register(self, block: int, hash_: bytes) -> None:
        """The block now holds the full, committed prefix that `hash_` names."""
        if self._prefix_cache and block not in self._hash_of and hash_ not in self._block_of:
            self._hash_of[block] = hash_
            self._block_of[hash_] = block

    def release(self, blocks: Iterable[int]) -> None:
        """Lets go of the blocks of one sequence, given in order of position."""
        for block in reversed(list(blocks)):
            self._holders[block] -= 1
            assert self._holders[block] >= 0, f"block {block} was released more often than held"
            if self._holders[block]:
                continue
            if block in self._hash_of:
                self._idle[block] = None  # the end of a prefix before its start
            else:
                self._unused.append(block)
