"""A tokenizer's chat template around texts that are put in later: what stands before and after."""

import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


Said = tuple[str, str]
"""A message's role, and what stands before its text."""
UNFIT = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""Errors of a template at messages that have no form in it."""
MONTHS = "January February March April May June July August September October November December"
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
OPENED = re.compile(r"<think>\s*\Z")


def pieces(
    tokenizer: "PreTrainedTokenizerBase",
    messages: Sequence[Said],
    parts: bool = False,
    day: str = "",
) -> list[str]:
    """Render what the template writes before, between and after the texts of these messages, of
    which each stands once, whole and in order; then the beginning of the model's turn.

    Contents are texts, or lists of parts where the template knows these alone; with `parts` the
    other way round. `day` (2026-11-26) is what the template takes for today. Raises ConfigError for
    a template that refuses the messages, or leaves something of them out.
    """
    problem = "it leaves out, or changes, what a user says"
    for as_parts in (parts, not parts):
        try:
            return _split(_rendered(tokenizer, messages, as_parts, day), messages)
        except UNFIT as error:
            problem = str(error) or problem
    raise ConfigError(
        f"the tokenizer's chat template cannot show these messages ({problem}): choose scaffold "
        "native, another model, or give the tokenizer a template that shows a user's first message"
    )


def writes_today(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the template writes today's date."""
    return "strftime_now" in str(tokenizer.chat_template)


def check_day(day: str) -> None:
    """Raise ConfigError for a text that is no day, and not empty."""
    try:
        date.fromisoformat(day or "2000-01-01")
    except ValueError as error:
        raise ConfigError(f"scaffold.options.date is a day, as 2026-11-26: {error}") from None


def opened(text: str) -> str:
    """The thought that a text leaves open at its end, "<think>" and spaces, or nothing."""
    found = OPENED.search(text)
    return found[0] if found else ""


def _marker(place: int) -> str:
    return f"\x00message {place}\x00"  # a template that quotes a text writes \x00 otherwise


def _rendered(
    tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Said], parts: bool, day: str
) -> str:
    marked = []
    for place, (role, before) in enumerate(messages):
        content: Any = before + _marker(place)
        content = [{"type": "text", "text": content}] if parts else content
        marked.append({"role": role, "content": content})
    template = f"{day_written(day)}{tokenizer.get_chat_template()}"
    return str(
        tokenizer.apply_chat_template(
            marked, chat_template=template, tokenize=False, add_generation_prompt=True
        )
    )


def _split(rest: str, messages: Sequence[Said]) -> list[str]:
    """A rendered text without the markers. Raises ValueError unless all stands in it."""
    found = []
    for place, (_, before) in enumerate(messages):
        piece, _, after = rest.partition(_marker(place))
        # Templates may strip the blanks that a message begins with.
        if rest.count(_marker(place)) != 1 or not piece.endswith(before.lstrip()):
            raise ValueError
        found.append(piece)
        rest = after
    return [*found, rest]


def day_written(day: str) -> str:
    """A macro in place of the `strftime_now` that templates are given: the beginning of a day, in
    English wherever it runs; nothing without a day. A function of ours would not get there."""
    if not day:
        return ""
    at = datetime.combine(date.fromisoformat(day), datetime.min.time())
    month, weekday = MONTHS.split()[at.month - 1], DAYS.split()[at.weekday()]
    names = {"B": month, "b": month[:3], "h": month[:3], "A": weekday, "a": weekday[:3], "p": "AM"}
    names |= {"-d": f"{at.day}", "e": f"{at.day:2}", "-m": f"{at.month}", "c": at.ctime()}
    names |= {"x": f"{at:%m/%d/%y}", "X": f"{at:%H:%M:%S}"}
    names |= {one: at.strftime(f"%{one}") for one in "dHIjmMSUwWyYZfzGuVDFRT%"}
    replaced = "".join(f"|replace({'%' + one!r}, {text!r})" for one, text in names.items())
    return f"{{%- macro strftime_now(form) -%}}{{{{ form{replaced} }}}}{{%- endmacro %}}\n"
