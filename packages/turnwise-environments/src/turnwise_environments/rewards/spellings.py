"""Commands and signs of LaTeX that say the same, in one spelling."""

import re

_SAME = (
    "le leq leqslant ≤ <=; ge geq geqslant ≥ >=; ne neq ≠; < lt; > gt; cup bigcup ∪; lor vee ∨;"
    "cdot times × ·; / div ÷; pm ±; infty ∞; pi π; setminus backslash; in ∈; approx ≈; , land;"
    "frac dfrac tfrac cfrac; binom dbinom tbinom; dots ldots cdots … ...; { lbrace; } rbrace;"
    "emptyset varnothing ∅; mathbb{R} ℝ; text mathrm textrm mbox textbf textit mathbf bold "
    "boldsymbol bm operatorname underline; | mid vert lvert rvert; overline bar dot; - − –;"
    "( langle; ) rangle; : colon; £ pounds"
)
_NOTHING = "left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle quad qquad rm bf it"
_SPELLINGS = dict.fromkeys(_NOTHING.split(), " ") | {
    spelling: name if name in "<>/|,-():£" else f"\\{name} "
    for entry in _SAME.split(";")
    for name, *spellings in (entry.split(),)
    for spelling in spellings
}
"""Commands and signs, and what says the same."""
_SPELLED = re.compile(r"(?<!\\)\\([a-zA-Z]+) ?|<=|>=|\.\.\.|[^\x00-\x7f]")


def spelled_alike(text: str) -> str:
    """Write each command and sign of a text in the first of its spellings."""
    return _SPELLED.sub(lambda found: _SPELLINGS.get(found[1] or found[0], found[0]), text)
