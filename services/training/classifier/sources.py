"""The packages whose texts the classifier learns from; DATA.md says more of their licences."""

from __future__ import annotations

from collections.abc import Mapping

from services.training.classifier.downloads import Download

_MANUALS = ("cs", "da", "de", "es", "fr", "hu", "it", "ja", "nl", "pl", "pt-br", "ro", "ru", "sv", "uk")
_GPL, _MIT = "GPL-2.0-or-later", "MIT"

# Installed with the extra `training`, for it has other uses.
INSTALLED = ("chitchat-dataset", "reasoning-gym")
MATHEMATICS = Download("pypi", "mathematics-dataset", "1.0.1", "Apache-2.0")
# What mathematics-dataset imports, as old as it is.
MATHEMATICS_NEEDS = (
    Download("pypi", "sympy", "1.5.1", "BSD-3-Clause"),
    Download("pypi", "absl-py", "2.3.1", "Apache-2.0"),
    Download("pypi", "six", "1.17.0", _MIT),
    Download("pypi", "mpmath", "1.3.0", "BSD-3-Clause"),
)
WORDS = Download("debian", "wordnet-base", "", "WordNet (BSD-like)")
MANUALS = tuple(Download("debian", f"manpages-{language}", "", "GPL-3.0-or-later and others") for language in _MANUALS)
STORIES = (Download("debian", "wesnoth-1.16-httt", "", _GPL), Download("debian", "wesnoth-1.16-utbs", "", _GPL))
CODE: Mapping[Download, tuple[str, ...]] = {
    Download("npm", "lodash", "4.17.21", _MIT): (".js",),
    Download("npm", "express", "4.21.2", _MIT): (".js",),
    Download("npm", "rxjs", "7.8.1", "Apache-2.0"): (".ts",),
    Download("debian", "golang-golang-x-net-dev", "", "BSD-3-Clause"): (".go",),
    Download("debian", "librust-regex-dev", "", "MIT or Apache-2.0"): (".rs",),
    Download("debian", "nlohmann-json3-dev", "", _MIT): (".hpp",),
    Download("debian", "libglib2.0-dev", "", "LGPL-2.1-or-later"): (".h",),
    Download("debian", "bash-completion", "", _GPL): ("",),
    Download("debian", "ruby-rack", "", _MIT): (".rb",),
    Download("debian", "php-pear", "", "BSD-2-Clause"): (".php",),
    Download("debian", "tcllib", "", "TCL"): (".tcl",),
    Download("debian", "libmojolicious-perl", "", "Artistic-2.0"): (".pm",),
}
SOURCES = (MATHEMATICS, *MATHEMATICS_NEEDS, WORDS, *MANUALS, *STORIES, *CODE)
