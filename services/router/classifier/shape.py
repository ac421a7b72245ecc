"""What a text looks like without its words: counts of numbers, sentences, lines and signs, in coarse steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from services.router.classifier.hashing import UInts, mixed, salt

_FAMILY = 64
_SIGNS = {
    "end": ".!?。।։۔؟",
    "question": "?؟",
    "code": "{}[]();=<>_\"'`#/\\:&|@",
    "fence": "`",
    "tex": "$\\^",
    "operator": "+-*/=×÷·",
    "money": "$€£¥₹%٪",
    "line": "\n",
    "comma": ",،、",
}
_NAMES = tuple(_SIGNS)
_TABLE_SIZE = 0x3100  # all signs lie below


def _sign_table(name: str) -> npt.NDArray[np.uint8]:
    table = np.zeros(_TABLE_SIZE, dtype=np.uint8)
    table[[ord(sign) for sign in _SIGNS[name]]] = 1
    return table


# Bit b of an entry: the character is one of the b-th kind of signs.
_BITS = np.zeros(_TABLE_SIZE, dtype=np.uint16)
for _bit, _name in enumerate(_NAMES):
    _BITS |= _sign_table(_name).astype(np.uint16) << np.uint16(_bit)
_ZERO = ord("0")


def shape_hashes(codes_C: UInts, is_letter_C: npt.NDArray[np.bool_]) -> UInts:
    """One hash for each statement about the shape; digits are all 0 in `codes_C`. None of an empty text."""
    size = codes_C.size
    if not size:
        return codes_C
    bits_C = _BITS[np.minimum(codes_C, _TABLE_SIZE - 1)]
    kinds, kind_counts = np.unique(bits_C, return_counts=True)
    count = {
        name: int(kind_counts[(kinds >> np.uint16(bit)) & np.uint16(1) == 1].sum()) for bit, name in enumerate(_NAMES)
    }
    numbers, words = _runs(codes_C == _ZERO), _runs(is_letter_C)
    visible = np.flatnonzero(codes_C > ord(" "))
    is_question = bool(visible.size) and chr(codes_C[visible[-1]]) in _SIGNS["question"]
    after_line = codes_C[1:][codes_C[:-1] == ord("\n")]
    indented = int(np.count_nonzero((after_line == ord(" ")) | (after_line == ord("\t"))))

    many, spread, sentences = _step(numbers), _per_mille(numbers, words), _step(count["end"])
    code, money = _per_mille(count["code"], size), min(_step(count["money"]), 3)
    foreign = _per_mille(int(np.count_nonzero(codes_C > 0x7F)), size)
    statements = (
        (many,),
        (spread,),
        (sentences,),
        (code,),
        (money,),
        (_step(size),),
        (is_question,),
        (_step(count["line"]), min(_step(indented), 4)),
        (min(_step(count["fence"]), 4),),
        (_per_mille(count["tex"], size),),
        (_per_mille(count["operator"], size), min(many, 3)),
        (_per_mille(count["comma"], size),),
        (foreign,),
        # Numbers in sentences that end with a question are what word problems are made of.
        (many, is_question),
        (many, sentences, is_question),
        (spread, is_question, money > 0),
        (spread, code),
        (code, is_question, count["line"] > 1),
        (foreign, code),
    )
    values = [hash_of(index, statement) for index, statement in enumerate(statements)]
    return mixed(np.array(values, dtype=np.uint32), salt(_FAMILY))


def hash_of(index: int, statement: tuple[int, ...]) -> int:
    """Apart for different statements: every part is below 64."""
    value = index + 1
    for part in statement:
        value = value * 64 + int(part)
    return value & 0xFFFFFFFF


def _runs(is_in_C: npt.NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(is_in_C[1:] & ~is_in_C[:-1])) + int(is_in_C[0])


def _step(count: int) -> int:
    """0, 1, 2, then one more for each doubling."""
    return min(count, 2) if count < 3 else (count - 1).bit_length() + 1


def _per_mille(count: int, of: int) -> int:
    """0 for none, then steps of doublings from 4 in a thousand."""
    return 0 if not count else 1 + (count * 250 // max(of, 1)).bit_length()
