"""Short answers compared with the accepted ones: exact match and word overlap.

Texts are normalised as in SQuAD (lower case, no punctuation, no articles, single spaces), with
these differences, because an answer here may be a program's name or a number:

- dots inside a word and underscores stay: `os.path` is not `ospath`, `_io` is not `io`;
- the dots of initials go: `U.S.` is `us`, `Washington D.C.` is `washington dc`;
- a minus before a number stays: -5 is not 5;
- nothing goes that would leave nothing: the answers `A` and `%` stay what they are.

A whole answer is compared, never looked for inside a longer one: `tarfile or zipfile` is wrong.
"""

import re
from collections import Counter
from collections.abc import Sequence

_INITIALS = re.compile(r"(?<![\w.])(?:[^\W\d_]\.)+[^\W\d_]?(?![\w.])")
# The first two alternatives match what stays, so that group 1 has only what goes.
_PUNCTUATION = re.compile(r"(?<!\w)-(?=\d)|(?<=\w)\.(?=\w)|([^\w\s])")
# Not beside a dot: the `a` of `a.b` is a name.
_ARTICLE = re.compile(r"\b(?<!\.)(?:a|an|the)\b(?!\.)")
_CLOSED = frozenset({"yes", "no", "noanswer"})
"""Answers that share no credit with any other."""


def normalise(text: str) -> str:
    """The text as it is compared.

    >>> normalise("The `xml.dom.minidom` module.")
    'xml.dom.minidom module'
    """
    lowered = _INITIALS.sub(lambda match: match.group().replace(".", ""), text.lower())
    bare = _PUNCTUATION.sub(lambda match: "" if match.group(1) else match.group(), lowered)
    for candidate in (_ARTICLE.sub(" ", bare), bare, text.lower()):
        if candidate.strip():
            return " ".join(candidate.split())
    return ""


def exact_match(answer: str | None, accepted: Sequence[str]) -> bool:
    """True when the normalised answer equals a normalised accepted one; never for an empty one."""
    given = normalise(answer or "")
    return bool(given) and any(given == normalise(candidate) for candidate in accepted)


def states(text: str, accepted: Sequence[str]) -> bool:
    """Whether a text has one of the accepted answers among its words, both normalised. For what
    tools returned, never for answers.

    >>> states("[1] Class TarFile. Module: tarfile.", ["tarfile"])
    True
    """
    words = f" {normalise(text)} "
    wanted = [normalise(candidate) for candidate in accepted]
    return any(bool(one) and f" {one} " in words for one in wanted)


def f1(answer: str | None, accepted: Sequence[str]) -> float:
    """Harmonic mean of word precision and recall against the best accepted answer, 0 to 1. For
    reports, not for rewards: naming every candidate earns a part of it. `yes`, `no` and `noanswer`
    count only when they are the whole answer."""
    given = normalise(answer or "")
    return max((_overlap(given, normalise(candidate)) for candidate in accepted), default=0.0)


def _overlap(given: str, wanted: str) -> float:
    if given != wanted and (given in _CLOSED or wanted in _CLOSED):
        return 0.0
    given_words, wanted_words = given.split(), wanted.split()
    common = sum((Counter(given_words) & Counter(wanted_words)).values())
    if common == 0:
        return 0.0
    return 2 * common / (len(given_words) + len(wanted_words))
