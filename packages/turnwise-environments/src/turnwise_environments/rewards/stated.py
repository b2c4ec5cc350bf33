r"""The answer that a text states: `The area is $\pi/3$.` states `$\pi/3$`, and a box what is in it.

Nothing is guessed. A text has one box; or a subject in words and a verb before all of its
mathematics, without a word that changes or hedges what they say; or equals signs, of which
`members` gives what stands between them. Any other is its own answer, as it is.
"""

import re

from turnwise_environments.rewards.expressions import unwrapped

MAX_SENTENCE = 200
"""Characters of a sentence that is looked through for its one number."""
LEAST_WORDS = 3
"""Words of a sentence in a box."""
MAX_WORDS, MAX_LEADS = 12, 3
"""Words of a subject, and what may stand before an answer: "Final answer: the answer is"."""
_BRACE = re.compile(r"(\\(?:boxed|fbox)\s*\{)|(?<!\\)[{}]")
_OR_BOX, _BOX_OR = re.compile(r"\bor[\s$(\[\\*]*$"), re.compile(r"[\s$)\]\\,*]*or\b")
"""The words before or behind the box of a hedge, as in `$\\boxed{42}$ or 43`."""
_VERBS = (
    "is|are|was|were|equals|measures|weighs|has|have|had|gets?|got|gives?|gave|finds?|obtains?|"
    "takes?|took|makes?|made|needs?|costs?|earns?|earned|pays?|paid|spends?|spent|sells?|sold"
)
_LED = re.compile(
    rf"(?P<subject>(?:(?:[^\W\d_]['’\w-]*[,:]?|\$[^$\d=<>]+\$,?)\s+){{0,{MAX_WORDS}}}?)(?:(?:{_VERBS})|"
    r"(?:so|then|thus|hence|therefore),?(?=\s*[\d$\\])|(?:answer|result|solution)\s*(?:is\s*)?:|"
    r"(?:option|choice|answer)(?=\s*\(?[A-Z]\)?\.?$))\s*:?\s*(?P<answer>\S.*)",
    re.DOTALL | re.IGNORECASE,
)
_HOPE = re.compile(r"(?:\.|(?<!\s))\s*I hope it is correct\.?$")
_HEDGED = re.compile(
    r"\b(?:not|no|never|none|cannot|without|if|unless|except|false|wrong|incorrect|either|neither|x?or|"
    r"nor|between|about|around|roughly|approximately|nearly|almost|than|least|most|more|less|maybe|"
    r"perhaps|possibly|probably|might|may|could|would|should|guess|doubt|other|half|twice|double|"
    r"triple|negative|opposite|minus|plus|times|square[ds]?|root|reciprocal|inverse)\b|n['’]t\b",
    re.IGNORECASE,
)
_NUMBER = r"[-$€£]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?%?"
_WORD = r"(?:[^\W\d_]['’\w-]*[^\W\d_]['’]?|[aAI])[,:;]?"
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_GIVEN = rf"({_NUMBER}|\${_NUMBER}\$)"
_ONLY = re.compile(rf"(?:(?:{_WORD}|\$[^$\d]+\$,?) )*{_WORD} {_GIVEN}(?: {_WORD})*")
_IS = "(?:is|are|was|were|be)"
_LAST = re.compile(rf"(?:(?!{_IS} [-$€£\d]|[^ ]*[=~])[^ ]+ )+{_IS} {_GIVEN}(?: {_WORD}){{0,2}}")
_ASIDE = re.compile(
    r"\b(?:zero|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|"
    r"million|billion|thirds?|quarters?|fourths?|fifths?|tenths?|above|below|over|under|what|which|"
    r"whether|why|how|percent|cent|pi|theta|factorial|cubed|sqrt|log|ln|exp|sin|cos|tan|mod|choose)\b",
    re.IGNORECASE,
)
_EQUALS = re.compile(r"(?<![<>!=\\])=(?!=)|\\equiv(?![a-zA-Z])")
_ABOUT = re.compile(r"\\approx(?![a-zA-Z])|≈")
_THEREFORE = re.compile(r"\\implies(?![a-zA-Z])|\\(?:R|Longr)ightarrow(?![a-zA-Z])|⇒")
_SPACE = re.compile(r"(?<!\\)\\[!,;: ]")
_RELATION = re.compile(
    r"[<>≤≥≠,;]|\b(?:and|or)\b|\\(?:le|ge|ne|lt|gt|in|text|or)(?![a-z])|\\n?[lg]eq"
)


def stated(text: str) -> str:
    """The answer that a text states; the text itself where that is not plain."""
    text = text.strip()
    boxes = _boxes(text)
    if len(set(boxes.values())) > 1 or any(_is_hedged(text, *place) for place in boxes):
        return text
    if boxes:
        box = next(iter(boxes.values()))
        words = _TEXT.fullmatch(box.strip())
        if words is None or len(words[1].split()) < LEAST_WORDS:
            return box
        text = words[1]
    for _ in range(MAX_LEADS):
        found = _LED.fullmatch(_HOPE.sub("", text.replace("**", "")))
        if found is None or _HEDGED.search(found["subject"]):
            break
        text = found["answer"]
    return text


def told_number(text: str) -> str | None:
    """The number of a sentence that has but one, `So Betty needs $5 more.`, or that ends by saying
    what the subject is, `In 10 years he will be 19.`; without words that change or hedge it."""
    if len(text) > MAX_SENTENCE:
        return None
    bare = _TEXT.sub(r"\1", text.replace("**", "").replace("\\$", "$"))
    sentence = " ".join(bare.split()).removesuffix(".")
    told = _ONLY.fullmatch(sentence) or _LAST.fullmatch(sentence)
    # `more` says what the number is of, where nothing is compared by `than`; May is a month.
    words = re.sub(r"\bmore\b|(?<=\w )May\b", "", sentence)
    if told is None or _HEDGED.search(words) or _ASIDE.search(words):
        return None
    return told[1].strip("$")


def members(text: str) -> list[str]:
    """The members between the equals signs of a text, or of what it says to follow, without a
    rounded value behind it; the text alone where it is no chain of them."""
    exact = _ABOUT.split(_THEREFORE.split(unwrapped(text))[-1])[0]
    found = [one.strip("$ ") for one in _EQUALS.split(exact.removeprefix("="))]
    return [text] if _RELATION.search(_SPACE.sub("", exact)) or not all(found) else found


def names(text: str, value: str) -> bool:
    r"""Whether a member only names a value: it has letters that the value has not, and numbers in
    an index or as an argument alone, as `S_{10}`, `f(f(2))`, `|x - y|`, `\gcd`, or squares of
    several, as `AB^2`; `2x`, `x^2` and `x - 1` do more than that."""
    index, argument = r"_(?:\{[^{}]*\}|\w)", r"(?<=[a-zA-Z'])\s*\([^()]*\)|(?<=\\[a-z]{3}) ?\d+"
    called = re.sub(f"{index}|{argument}", "", text)
    bare = re.sub(argument, "", called)
    if len(re.findall("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", bare))) > 1:
        bare = re.sub(r"\^ ?(?:\{ ?\d ?\}|\d)", "", bare)
    own = set(re.findall("[a-zA-Z]", bare)) & set(re.sub(r"\\[a-zA-Z]+", "", value))
    return not own and re.fullmatch(r"[\\ '|+{}-]*[a-zA-Z][a-zA-Z\\ '|+{}-]*", bare) is not None


def _is_hedged(text: str, start: int, end: int) -> bool:
    return bool(_OR_BOX.search(text[max(0, start - 20) : start]) or _BOX_OR.match(text, end))


def _boxes(text: str) -> dict[tuple[int, int], str]:
    """The contents of boxes, as far as their braces are closed, by where those begin and end."""
    found, opened = dict[tuple[int, int], str](), list[re.Match[str]]()
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(brace)
        elif opened and (begun := opened.pop())[1]:
            found[begun.start(), brace.end()] = text[begun.end() : brace.start()]
    return found
