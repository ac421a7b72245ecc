from __future__ import annotations

import math
from dataclasses import fields

import pytest

from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation

MAX_U32 = 2**32 - 1
# Field: values at and just inside both ends, values just outside.
BOUNDS: dict[str, tuple[list[object], list[object]]] = {
    "max_tokens": ([None, 1, MAX_U32], [0, -1, MAX_U32 + 1, 10**400]),
    "temperature": ([0.0, 1e-7, 1.0, 2.0], [-0.1, 2.0001, 1e-8, 5e-324, math.nan, math.inf]),
    "top_k": ([0, 1, MAX_U32], [-1, MAX_U32 + 1, 10**400]),
    "top_p": ([1e-6, 0.5, 1.0], [0.0, -0.5, 1.0001, math.nan, math.inf]),
    "min_p": ([0.0, 0.5, 1.0], [-0.001, 1.0001, math.nan, -math.inf]),
    "repetition_penalty": ([0.001, 1.0, 2.0], [0.0, 1e-40, -1.0, 2.0001, math.nan]),
    "presence_penalty": ([-2.0, 0.0, 2.0], [-2.0001, 2.0001, math.nan]),
    "frequency_penalty": ([-2.0, 0.0, 2.0], [-2.0001, 2.0001, math.inf]),
    "min_tokens": ([0, 1, MAX_U32], [-1, MAX_U32 + 1]),
    "seed": ([None, 0, 2**64 - 1], [-1, 2**64]),
    "n": ([1, 16], [0, 17]),
    "logprobs": ([None, 0, 20], [-1, 21]),
    "prompt_logprobs": ([None, 0, 20], [-1, 21]),
    "logit_bias": (
        [{}, {0: -100.0, 2**31 - 1: 100.0}, dict.fromkeys(range(1024), 1.0)],
        [{0: 100.5}, {0: math.nan}, {-1: 1.0}, {2**31: 1.0}, dict.fromkeys(range(1025), 1.0)],
    ),
    "bad_words": (
        [(), ((0,) * 32,), ((1,),) * 128],
        [((),), ((1,), ()), ((0,) * 33,), ((1,),) * 129, ((-1,),), ((2**31,),)],
    ),
    "stop": ([(), ("a",) * 16, ("x" * 256,)], [("",), ("a", ""), ("a",) * 17, ("x" * 257,), ("a\ud800",)]),
    "stop_token_ids": ([(), tuple(range(16)), (2**31 - 1,)], [tuple(range(17)), (-1,), (2**31,)]),
    "ignore_eos": ([False, True], []),
    "include_stop": ([False, True], []),
    "response_format": ([None, "{}", '{"type": "object"}'], ["", "[]", "{", '{"a":' * 33 + "1" + "}" * 33]),
}


def test_every_field_has_bounds_here() -> None:
    assert BOUNDS.keys() == {field.name for field in fields(SamplingParams)}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, (inside, _) in BOUNDS.items() for v in inside])
def test_values_inside_are_taken(name: str, value: object) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, (_, outside) in BOUNDS.items() for v in outside])
def test_values_outside_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name}\b.*(must be|allowed|at most|needs|give)"):
        SamplingParams(**{name: value})


def test_min_tokens_is_at_most_max_tokens() -> None:
    assert SamplingParams(max_tokens=3, min_tokens=3).min_tokens == 3
    with pytest.raises(ValueError, match=r"min_tokens: 4 is out of range; it must be at least 0 and at most 3"):
        SamplingParams(max_tokens=3, min_tokens=4)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(logit_bias={50: 1.0}),
        SamplingParams(stop_token_ids=(3, 50)),
        SamplingParams(bad_words=((1, 50),)),
    ],
)
def test_token_ids_are_below_the_vocabulary(params: SamplingParams) -> None:
    params.check_vocabulary(51)
    with pytest.raises(ValueError, match=r"50 is out of range; it must be at least 0 and at most 49"):
        params.check_vocabulary(50)


def test_what_is_greedy_and_what_has_penalties() -> None:
    assert SamplingParams(temperature=0.0).is_greedy
    assert not SamplingParams(temperature=1e-7).is_greedy
    assert not SamplingParams().has_penalties
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        assert SamplingParams(**{name: 0.5}).has_penalties


@pytest.mark.parametrize("limit", [None, 0, 16])
def test_speculation_inside(limit: int | None) -> None:
    for drafter in ("auto", "mtp", "dfly", "lookup", "none"):
        speculation = Speculation(drafter, limit)
        assert speculation.is_off == (drafter == "none" or limit == 0)


def test_speculation_outside() -> None:
    for limit in (-1, 17):
        with pytest.raises(ValueError, match=rf"max_draft_tokens: {limit} .* at least 0 and at most 16"):
            Speculation("auto", limit)
    with pytest.raises(ValueError, match=r"drafter: 'eagle' .* one of auto, mtp, dfly, lookup, none"):
        Speculation("eagle")  # type: ignore[arg-type]
