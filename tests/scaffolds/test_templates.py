"""Chat templates in the shapes that model families have: nothing of the prompt is lost, and what
the prompt has opened belongs to the turn."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from tests.fakes import byte_tokenizer
from turnwise.config import ScaffoldConfig
from turnwise.errors import ConfigError
from turnwise.scaffolds.registry import SCAFFOLDS, make_scaffold, with_date
from turnwise.scaffolds.templates import pieces
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, ToolCall

EACH = "{% for m in messages %}"
REPLY = "{% if add_generation_prompt %}<a>{% endif %}"
PARTS = "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"
SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}You help.{% endif %}"
)
THINKS = EACH + "<|{{ m.role }}|>{{ m.content }}{% endfor %}<a>{{ '<think>\\n' }}"
DATED = "{{ strftime_now('%d %b %Y, %A') }}|" + EACH + "{{ m.content }}{% endfor %}" + REPLY
SHOWN = {
    "chatml": EACH + "<s>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}" + REPLY,
    "a default system message": SYSTEM + EACH + "<u>{{ m.content }}{% endfor %}" + REPLY,
    "trimmed": EACH + "[INST] {{ m.content | trim }} [/INST]{% endfor %}",
    "parts alone": EACH + "<u>" + PARTS + "{% endfor %}" + REPLY,
    "text or parts": EACH
    + "{% if m.content is string %}{{ m.content }}{% else %}"
    + PARTS
    + "{% endif %}{% endfor %}"
    + REPLY,
    "text alone": EACH + "{{ '<u>' + m.content + '</u>' }}{% endfor %}" + REPLY,
    "the first part": EACH + "{{ m.content[0].text }}{% endfor %}" + REPLY,
    "thinks": THINKS,
    "dated": DATED,
}
"""Templates that show a user's first message in one form of its content or the other."""
REFUSED = {
    "without it": "You help." + REPLY,
    "the system's alone": EACH
    + "{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    + REPLY,
    "quoted": EACH + "{{ m.content | tojson }}{% endfor %}" + REPLY,
    "twice": EACH + "{{ m.content }}{{ m.content }}{% endfor %}" + REPLY,
    "cut": EACH + "{{ m.content[-20:] }}{% endfor %}" + REPLY,
    "in capitals": EACH + "{{ m.content | upper }}{% endfor %}" + REPLY,
    "needs a system message": "{{ raise_exception('first a system message') }}",
    "damaged": "{{ messages[0].content",
}


class Tools:
    @tool
    def search(self, query: str) -> str:
        """Search."""
        return query


TOOLS = [Tool.of(Tools().search)]


def made(template: str, name: str = "tags", **options: str) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return SCAFFOLDS.get(name)(tokenizer, TOOLS, **options)


def text(segments: Sequence[Segment]) -> str:
    return byte_tokenizer().decode([token for one in segments for token in one.tokens])


def tokens(said: str) -> list[int]:
    return list(byte_tokenizer()(said, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("with_images", [False, True])
@pytest.mark.parametrize("name", SHOWN)
def test_instructions_and_task_stand_where_the_first_user_message_stands(
    name: str, with_images: bool
) -> None:
    scaffold = made(SHOWN[name], instructions="Do it.\nUse {tools}.\n")
    scaffold.encode_image = tokens if with_images else None
    begin = scaffold.begin(Observation(" the task ", Source.USER))
    assert [one.source for one in begin] == [Source.TEMPLATE, Source.USER, Source.TEMPLATE]
    assert text(begin).count("Do it.\nUse To use search") == text(begin).count(".\n the task ") == 1
    assert text(begin[2:]) in ("<a>", "<e>\n<a>", " [/INST]", "</u><a>", "<a><think>\n")


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_loses_something_is_refused_before_a_run_begins(name: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = REFUSED[name]
    with pytest.raises(ConfigError, match="chat template cannot show these messages"):
        make_scaffold(ScaffoldConfig(name="tags"), tokenizer, TOOLS)


def test_messages_of_several_roles_keep_their_order() -> None:
    tokenizer = byte_tokenizer()
    said = [("system", ""), ("user", "Q: ")]
    tokenizer.chat_template = SHOWN["chatml"]
    assert pieces(tokenizer, said) == ["<s>system\n", "<e>\n<s>user\nQ: ", "<e>\n<a>"]
    tokenizer.chat_template = EACH.replace("messages", "messages | reverse") + SHOWN["chatml"][23:]
    with pytest.raises(ConfigError, match="leaves out, or changes"):
        pieces(tokenizer, said)


CALL = ToolCall("search", {"query": "France"})
WING = pytest.mark.wing("environments")
KINDS = ["tags", pytest.param("react", marks=WING), pytest.param("code", marks=WING)]
NAMED = {
    "tags": "I could <search> Rome</search> first.",
    "react": "I could\nAction: search\nAction Input: Rome\nfirst.",
    "code": "I could <code>search('Rome')</code> first.",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "action", [Action("", "hm", (CALL,)), Action("", answer="Paris"), Action("", "so", answer="x")]
)
def test_a_thought_that_the_prompt_has_opened_is_the_turns(kind: str, action: Action) -> None:
    scaffold = made(THINKS, kind)
    assert text(scaffold.begin(Observation("?", Source.USER))).endswith("<think>\n")
    assert text(scaffold.extend(Observation("Paris"))).endswith("<think>\n")
    written = scaffold.render(action)
    assert "<think>" not in text([Segment(written, Source.MODEL)])
    read = scaffold.parse(written)
    assert (read.thought, read.calls, read.answer) == (action.thought, action.calls, action.answer)
    assert read.text.startswith("<think>\n")
    assert read.error is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_named_in_an_opened_thought_is_not_done(kind: str) -> None:
    scaffold = made(THINKS, kind)
    named = scaffold.parse(scaffold.render(Action("", NAMED[kind], (CALL,))))
    assert (named.calls, named.thought) == ((CALL,), NAMED[kind])
    unclosed = scaffold.parse(tokens(NAMED[kind]))
    assert "<think> is not closed by </think>" in unclosed.error
    again = scaffold.parse(scaffold.render(unclosed))
    assert again.text.removesuffix(scaffold._end) == unclosed.text


def test_a_template_that_closes_the_thought_opens_none() -> None:
    scaffold = made(THINKS + "{{ '\\n</think>\\n\\n' }}")
    assert scaffold.parse(tokens("<think> hm</think><answer> x</answer>")).thought == "hm"
    assert not text(scaffold.extend(Observation("Paris"))).endswith("think>\n")


def test_the_date_of_a_template_is_the_runs() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = DATED
    config = with_date(ScaffoldConfig(name="tags", options={"date": "2024-02-29"}), tokenizer)
    scaffold = make_scaffold(config, tokenizer, TOOLS)
    begin = text(scaffold.begin(Observation("?", Source.USER)))
    assert begin.startswith("29 Feb 2024, Thursday|")


def test_a_day_is_written_in_all_forms_as_the_clock_writes_it() -> None:
    forms = "%d %-d %m %Y %y %H:%M:%S %j %B %b %A %a %p %% %F %x %c"
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        f"{{{{ strftime_now('{forms}') }}}}\n{EACH}{{{{ m.content }}}}{{% endfor %}}"
    )
    (before, _) = pieces(tokenizer, [("user", "")], day="2024-03-05")
    assert before == datetime(2024, 3, 5).strftime(forms) + "\n"


def test_todays_date_is_fixed_where_a_template_writes_it_and_nowhere_else() -> None:
    tokenizer = byte_tokenizer()
    assert with_date(ScaffoldConfig(name="tags"), tokenizer).options == {}
    tokenizer.chat_template = DATED
    fixed = with_date(ScaffoldConfig(name="tags"), tokenizer)
    assert fixed.options["date"]
    assert with_date(fixed, tokenizer) == fixed
    with pytest.raises(ConfigError, match="is a day, as 2026-11-26"):
        make_scaffold(ScaffoldConfig(name="tags", options={"date": "today"}), tokenizer, TOOLS)
