"""With mtp and dfly in processes of their own, switching and dying mid-request, the text is that of plain decoding."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.dcut.messages import Member
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation, as_drafter_choice
from services.target.drafting.config import DraftingConfig
from services.target.drafting.desk import Desk
from services.target.model.loader import LoadedTarget
from tests.engines import VOCABULARY, Ask, answer_all, answer_tokens, load_tiny, make_tiny_model, running_engine
from tests.integration.drafting.support import DrafterProcess, member, until
from tests.unit.drafters.neural.untrained import save_untrained
from tests.unit.target.desks import SilentDesk

KINDS = ("mtp", "dfly")
PROMPTS = [[(i * j * j + 11 * j) % 250 for j in range(5 + 13 * i)] for i in range(1, 8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("llama", tmp_path_factory.mktemp("identity") / "tiny")


@pytest.fixture(scope="module")
def target(folder: Path) -> LoadedTarget:
    return load_tiny(folder, "fp32")


@pytest.fixture(scope="module")
def weights(folder: Path) -> dict[str, Path]:
    return save_untrained(folder, folder.parent, window=32)


def start(kind: str, folder: Path, weights: dict[str, Path], port: int = 0) -> DrafterProcess:
    return DrafterProcess({"kind": kind, "neural": {"weights": str(weights[kind])}}, port, str(folder))


@pytest.fixture(scope="module")
def drafters(folder: Path, weights: dict[str, Path]) -> Iterator[dict[str, DrafterProcess]]:
    processes = {kind: start(kind, folder, weights) for kind in KINDS}
    yield processes
    for process in processes.values():
        process.kill()


class View:
    """A fleet view that can be changed while requests run."""

    def __init__(self, drafters: dict[str, DrafterProcess]) -> None:
        self._all = {kind: member(process.address, kind) for kind, process in drafters.items()}
        self._members: tuple[Member, ...] = tuple(self._all.values())

    def show(self, *kinds: str) -> None:
        self._members = tuple(self._all[kind] for kind in kinds)

    def __call__(self) -> tuple[Member, ...]:
        return self._members


@contextmanager
def desk_for(target: LoadedTarget, view: View) -> Iterator[Desk]:
    waits = {"min_wait_ms": 500, "max_wait_ms": 500, "refresh_s": 0.01, "min_backoff_s": 0.02, "max_backoff_s": 0.2}
    config = DraftingConfig.model_validate({"kinds": ("mtp", "dfly", "lookup"), **waits})
    desk = Desk(config, VOCABULARY, target.spec.hidden, "target-1", view)
    desk.start()
    try:
        yield desk
    finally:
        desk.stop()


def asks(drafter: str, temperature: float, max_tokens: int = 60) -> list[Ask]:
    speculation = Speculation(as_drafter_choice(drafter))
    return [
        Ask(
            prompt, SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=i, ignore_eos=True), speculation
        )
        for i, prompt in enumerate(PROMPTS)
    ]


def plain(target: LoadedTarget, temperature: float, max_tokens: int = 60) -> list[list[int]]:
    with running_engine(target, SilentDesk()) as engine:
        return answer_tokens(engine, asks("none", temperature, max_tokens))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(target: LoadedTarget, drafters: dict[str, DrafterProcess], kind: str, temperature: float) -> None:
    view = View(drafters)
    with desk_for(target, view) as desk, running_engine(target, desk) as engine:
        until(lambda: len(desk.features_of_interest()) == 2, "both are connected")
        answers = [choices[0] for choices in answer_all(engine, asks(kind, temperature), concurrency=3)]
        assert [answer.tokens for answer in answers] == plain(target, temperature)
        for answer in answers:
            assert answer.finish is not None
            assert answer.finish.statistics.drafter == kind
            assert answer.finish.statistics.num_drafts > 0
        assert not desk.counters.faults


@pytest.mark.parametrize("kind", ["auto", "mtp"])
def test_text_that_repeats_itself_is_looked_up_unless_a_kind_is_asked_for(
    target: LoadedTarget, drafters: dict[str, DrafterProcess], kind: str
) -> None:
    view = View(drafters)
    view.show("mtp")
    speculation = Speculation(as_drafter_choice(kind))
    wanted = [
        Ask(
            prompt,
            # A bias makes the text repeat one token for a while, or for ever.
            SamplingParams(max_tokens=80, temperature=temperature, seed=5, ignore_eos=True, logit_bias={7: bias}),
            speculation,
        )
        for prompt in (PROMPTS[1], PROMPTS[3])
        for bias in (0.0, 2.0, 100.0)
        for temperature in (0.0, 0.8)
    ]
    with running_engine(target, SilentDesk()) as engine:
        texts = answer_tokens(engine, wanted)
    with desk_for(target, view) as desk, running_engine(target, desk) as engine:
        until(lambda: len(desk.features_of_interest()) == 1, "mtp is connected")
        answers = [choices[0] for choices in answer_all(engine, wanted, concurrency=3)]
        assert [answer.tokens for answer in answers] == texts
        assert desk.counters.asks > 0
        assert (desk.counters.local_drafts > 0) == (kind == "auto")
        told = {answer.finish.statistics.drafter for answer in answers if answer.finish is not None}
        assert told <= ({"mtp", "mtp+lookup"} if kind == "auto" else {"mtp"})
        assert not desk.counters.faults


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_switching_mid_request(target: LoadedTarget, drafters: dict[str, DrafterProcess], temperature: float) -> None:
    view = View(drafters)
    ended = threading.Event()

    def switch() -> None:
        for kinds in itertools.cycle([("mtp",), ("dfly",), (), ("dfly", "mtp")]):
            view.show(*kinds)
            if ended.wait(0.05):
                return

    switching = threading.Thread(target=switch)
    with desk_for(target, view) as desk, running_engine(target, desk) as engine:
        until(lambda: len(desk.features_of_interest()) == 2, "both are connected")
        switching.start()
        try:
            found = answer_tokens(engine, asks("auto", temperature, 300), concurrency=3)
        finally:
            ended.set()
            switching.join()
        assert found == plain(target, temperature, 300)
        assert desk.counters.catch_ups > len(PROMPTS), "sequences moved between drafters"
        assert desk.counters.drafts > 0


def test_killed_and_back(target: LoadedTarget, folder: Path, weights: dict[str, Path]) -> None:
    first = start("mtp", folder, weights)
    view = View({"mtp": first})
    again: list[DrafterProcess] = []
    with desk_for(target, view) as desk, running_engine(target, desk) as engine:
        until(lambda: len(desk.features_of_interest()) == 1, "it is connected")

        def kill() -> None:
            until(lambda: desk.counters.drafts > 10, "drafts")
            first.process.send_signal(signal.SIGKILL)
            until(lambda: desk.counters.disconnects == 1, "the loss is noticed")
            first.kill()
            again.append(start("mtp", folder, weights, first.port))

        killing = threading.Thread(target=kill)
        killing.start()
        found = answer_tokens(engine, asks("auto", 0.0, 300), concurrency=3)
        killing.join()
        try:
            assert found == plain(target, 0.0, 300)
            before = desk.counters.drafts
            until(lambda: desk.counters.connects == 2, "it is connected again")
            answer_tokens(engine, asks("mtp", 0.0), concurrency=3)
            assert desk.counters.drafts > before
        finally:
            again[0].kill()
