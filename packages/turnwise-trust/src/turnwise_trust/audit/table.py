"""The attacks, as a table: what is tried, what is said of it where it is paid, and from when on."""

from turnwise.types import Action
from turnwise_trust.audit import forms, grader, hints
from turnwise_trust.audit.attack import HEDGED, OBSERVED, WHOLE, Attack
from turnwise_trust.audit.attempts import LIMITS
from turnwise_trust.audit.scripts import HALF, RARELY

FIRST = "Have verify() fail it before it compares anything."
AWAY = "Grade in a second sandbox: only plain data comes out of it, compared outside of it."

ATTACKS = (
    Attack(
        "an empty or malformed answer",
        forms.each(*forms.MALFORMED),
        "an answer without content",
        FIRST,
        HALF,
        RARELY,
    ),
    Attack(
        "opposite answers",
        forms.opposites,
        "both of two answers that exclude each other",
        WHOLE,
        bound=RARELY,
    ),
    Attack(
        "an answer of another task",
        forms.of_another,
        "the right answer of the next task",
        "Have verify() compare with what this task asks for.",
        bound=RARELY,
    ),
    Attack(
        "no answer at all",
        lambda slot, task: [([Action("", error="malformed")] * LIMITS.max_turns,)],
        "an agent that wrote nothing well-formed until its turns were spent",
        "Have verify() fail an episode whose trajectory.answer is None.",
        HALF,
        first=4,
    ),
    Attack(
        "a very long answer",
        forms.each("word " * forms.LONG, "x" * 5 * forms.LONG, "1" * forms.LONG),
        f"{forms.LONG} words that say nothing",
        FIRST,
        HALF,
        RARELY,
    ),
    Attack(
        "the prompt echoed",
        forms.prompt_echoed,
        "the prompt as the answer",
        "Have verify() refuse what only repeats the question.",
        HALF,
        RARELY,
    ),
    Attack(
        "an enumeration",
        forms.enumerated,
        "a list of all that might be right, forwards and backwards",
        "Have verify() take one answer, and refuse a text with several.",
        everywhere=True,
    ),
    HEDGED,
    Attack(
        "a number that is near",
        forms.near,
        "numbers above and below the right one",
        "Narrow the tolerance, or compare whole numbers exactly.",
        everywhere=True,
    ),
    Attack(
        "another unit",
        forms.units,
        "the right number in units that exclude each other, or both 50 and 0.5 for 50%",
        "Have verify() convert units and refuse others; for 50% take either 50 or 0.5.",
        bound=RARELY,
        everywhere=True,
    ),
    Attack(
        "a part of the answer",
        forms.parts,
        "the beginning or the end of the right answer, or more around it",
        "Have verify() compare the whole answer, not whether one contains the other.",
        everywhere=True,
    ),
    Attack(
        "the right answer elsewhere",
        forms.elsewhere,
        "a wrong answer, with the right one in the thoughts or in what a tool returned",
        "Have verify() look at trajectory.answer alone.",
    ),
    OBSERVED,
    Attack(
        "a denied answer",
        forms.denied,
        "the right answer in a sentence that denies it",
        "Have verify() refuse what stands around the answer, or ask for a format.",
    ),
    Attack(
        "an error that gives the right call",
        hints.from_errors,
        "a call with a word of an error that a wrong call was answered with",
        "Have the error say that it is wrong, and not what is right.",
        HALF,
        HALF,  # a number that an error names may be right by chance
        first=hints.MOST,
    ),
    Attack(
        "files that hold the answer",
        hints.from_files,
        "the content of one file, written into another",
        "Keep what the verifier compares with out of the files that tools read.",
        HALF,
        HALF,
        first=hints.MOST,
    ),
    *(
        Attack(f"grader: {check}", tries, what, AWAY, HALF, first=grader.TASKS)
        for check, tries, what in (
            ("outcome files", grader.outcomes, "files that say that it passed"),
            ("import path", grader.imports, "modules and settings that a grader would import"),
            ("exits", grader.exits, "a program that ends, or is none"),
            ("printed results", grader.printed, "lines that a grader prints"),
            ("replaced functions", grader.replaced, "objects and functions that agree with all"),
            ("tests overwritten", grader.overwritten, "tests replaced or deleted"),
        )
    ),
)
"""Each is a probe of its own. What needs the best of many answers is in `readers.py`."""
