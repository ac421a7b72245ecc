"""Which parts of a chat are looked at."""

from __future__ import annotations

from services.router.classifier.conversation import MAX_BACKGROUND, Conversation, of_messages, of_prompt


def test_the_last_turn_of_the_user_is_apart_from_the_rest() -> None:
    seen = of_messages(
        [
            ("system", "You are kind."),
            ("user", "first"),
            ("assistant", "an answer"),
            ("user", "second"),
            ("assistant", "another"),
            ("user", "third"),
        ]
    )
    assert seen == Conversation("third", "second\n\nfirst\n\nYou are kind.", 2, True)


def test_what_the_model_said_is_left_out() -> None:
    seen = of_messages([("user", "go on"), ("assistant", "def f(): ...")])
    assert seen == Conversation("go on")


def test_a_developer_message_is_a_system_message() -> None:
    assert of_messages([("developer", "Be brief."), ("user", "hi")]).has_system


def test_without_a_turn_of_the_user_the_system_message_decides() -> None:
    assert of_messages([("system", "Write code.")]) == Conversation("Write code.")
    assert of_messages([]) == Conversation("")


def test_background_is_bounded() -> None:
    turns = [("user", "x" * 50_000) for _ in range(500)]
    seen = of_messages([("system", "y" * 50_000), *turns])
    assert len(seen.background) <= MAX_BACKGROUND + 20
    assert seen.num_earlier == 499
    assert len(seen.last) == 50_000  # features look at both ends


def test_a_bare_prompt_has_no_background() -> None:
    assert of_prompt("def f") == Conversation("def f")
