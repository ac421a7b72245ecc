from __future__ import annotations

import subprocess
import sys

import pytest

from services.drafters.config import DrafterConfig
from services.drafters.registry import KINDS, kind_of


def test_every_kind_builds_and_says_what_it_is() -> None:
    for name in KINDS:
        config = DrafterConfig(kind=name)
        assert kind_of(config).build(config).traits.kind == name


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="kind: 'guess' is not known; it must be one of lookup"):
        kind_of(DrafterConfig(kind="guess"))


def test_a_lookup_replica_never_pays_for_torch() -> None:
    code = (
        "import sys; import services.drafters.server; from services.drafters.registry import kind_of;"
        "from services.drafters.config import DrafterConfig; c = DrafterConfig(); kind_of(c).build(c);"
        "print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
