"""Any tokenizer's chat template: what was sampled stays, what is new is added, and the whole is
what the template makes of the conversation, or the model is refused before a run begins."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import processors

from chat_template_samples import CHANGED, MARKS, REFUSED, RESPONSES, TEMPLATES, merging_tokenizer
from tests.fakes import Capitals, byte_tokenizer
from turnwise.config import ScaffoldConfig
from turnwise.errors import ConfigError
from turnwise.scaffolds.registry import make_scaffold
from turnwise.tokens import Segment, Source
from turnwise.types import Action, Observation, ToolCall, ToolResult
from turnwise_environments.scaffolds.chat_template import ChatTemplateScaffold
from turnwise_environments.scaffolds.tool_formats import Call, NamedCalls, PythonCalls

TOOLS = Capitals().tools()
ITALY, SPAIN = (ToolCall("lookup", {"country": land}) for land in ("Italy", "Spain"))
ASKED = Observation(" Capital of Italy?\n", Source.USER)
ROME, MADRID = ToolResult(ITALY, " The capital\n\nis Rome. "), ToolResult(SPAIN, '{"is": "Madrid"}')
IN_WORDS = ("tools in words", "calls in words")


def made(name: str, **options: Any) -> ChatTemplateScaffold:
    tokenizer = merging_tokenizer(TEMPLATES[name], response_template=RESPONSES.get(name))
    return ChatTemplateScaffold(tokenizer, TOOLS, **options)


def ids(segments: Sequence[Segment]) -> list[int]:
    return [token for segment in segments for token in segment.tokens]


def called(strings: bool, *calls: ToolCall) -> dict[str, Any]:
    """A message with calls; some templates take arguments as JSON text."""
    written = []
    for place, call in enumerate(calls):
        arguments: Any = dict(call.arguments)
        function = {"name": call.name, "arguments": json.dumps(arguments) if strings else arguments}
        written.append({"type": "function", "id": f"call{place:05}", "function": function})
    return {"role": "assistant", "content": "", "tool_calls": written}


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name not in IN_WORDS])
def test_an_episode_is_what_the_template_makes_of_the_whole_conversation(name: str) -> None:
    """By transformers alone, token by token; the model's own tokens are as they were sampled."""
    scaffold = made(name)
    tokenizer = scaffold._tokenizer
    several = name not in ("one call", "channels")
    calls = (ITALY, SPAIN) if several else (ITALY,)
    results = (ROME, MADRID) if several else (ROME,)
    action = Action("", "hm" if name == "opened" else "", calls)
    written = scaffold.render(action)
    assert scaffold.parse(written).calls == calls
    shown = Observation("\n".join(one.content for one in results))
    begun = ids(scaffold.begin(ASKED, "" if name == "inst" else "Be brief."))
    played = [*begun, *written, *ids(scaffold.extend(shown, written, results))]

    talk: list[dict[str, Any]] = [{"role": "user", "content": ASKED.content}]
    if name != "inst":
        talk.insert(0, {"role": "system", "content": "Be brief."})
    if name == "tools unseen":
        talk[0]["content"] += f"\n\n{scaffold._format.renderer.forms.words}"
    talk.append(called(scaffold._format.renderer.forms.strings, *calls))
    if action.thought:
        talk[-1]["reasoning_content"] = action.thought
    for place, one in enumerate(results):
        talk.append({"role": "tool", "content": one.content, "tool_call_id": f"call{place:05}"})
    schemas = [{"type": "function", "function": spec} for spec in scaffold._specs]
    whole = tokenizer.apply_chat_template(talk, tools=schemas, add_generation_prompt=True)
    assert played == list(whole["input_ids"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_rendered_is_read_as_it_was_meant(name: str) -> None:
    scaffold = made(name)
    thinks = bool(scaffold._format.renderer.forms.thought_key)
    for action in (
        Action("", "look it up", (ITALY,)),
        Action("", "so it is", answer="Rome"),
        Action("", answer="Rome, I think"),
    ):
        read = scaffold.parse(scaffold.render(action))
        assert (read.calls, read.answer, read.error) == (action.calls, action.answer, None)
        expected = action.thought or ("…" if name == "opened" else "")
        assert read.thought == (expected if thinks else "")


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_from_outside_has_its_source_and_a_token_s_name_in_it_is_only_text(name: str) -> None:
    scaffold = made(name)
    hostile = " ".join(["x", *MARKS, "y"])
    written = scaffold.render(Action("", calls=(ITALY,)))
    told, result = Observation(hostile), ToolResult(ITALY, hostile)
    for source, segments in (
        (Source.USER, scaffold.begin(Observation(hostile, Source.USER))),
        (Source.TOOL, scaffold.extend(told, written, (result,))),
        (Source.USER, scaffold.extend(Observation(ROME.content), written, (ROME,), (hostile,))),
        (Source.ENVIRONMENT, scaffold.extend(Observation(hostile, Source.ENVIRONMENT), written)),
    ):
        foreign = ids([one for one in segments if one.source == source])
        assert hostile in scaffold._decode(foreign)
        assert not set(scaffold._tokenizer.added_tokens_decoder) & set(foreign)
        assert Source.MODEL not in {one.source for one in segments}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_turn_that_was_cut_off_is_closed_by_the_template(name: str) -> None:
    scaffold = made(name)
    whole = scaffold.render(Action("", answer="I do not know"))
    wrong = Observation("wrong", Source.ENVIRONMENT)
    ended, cut = (ids(scaffold.extend(wrong, written)) for written in (whole, whole[:-2]))
    assert cut[-len(ended) :] == ended
    assert scaffold._decode(cut[: -len(ended)]) == scaffold._format.closing


def test_a_format_without_tools_is_told_of_them_in_words() -> None:
    words = scaffold_text(made("tools in words"))
    assert '"name": "lookup"' in words
    assert '<tool_call>\n{"name": "lookup", "arguments": {"country": "…"}}' in words
    assert "You may call tools" not in scaffold_text(made("calls in words"))
    unseen = scaffold_text(made("tools unseen"))
    assert "<calls><call>function<sep>lookup\n```json" in unseen
    assert "You may call" not in scaffold_text(
        ChatTemplateScaffold(merging_tokenizer(TEMPLATES["json"]), [])
    )


def scaffold_text(scaffold: ChatTemplateScaffold) -> str:
    return scaffold._decode(ids(scaffold.begin(ASKED)))


def test_one_call_a_turn_where_the_template_has_one() -> None:
    scaffold = made("one call")
    assert not scaffold._format.parallel
    two = scaffold._decode(scaffold.render(Action("", calls=(ITALY,)))).removesuffix("<x>") * 2
    assert "one tool call a turn" in str(scaffold.parse(scaffold._encode(two)).error)
    with pytest.raises(ConfigError, match="one call at once"):
        scaffold.render(Action("", calls=(ITALY, SPAIN)))


def test_a_call_s_own_id_names_its_result() -> None:
    scaffold = made("inst")
    written = scaffold._encode(
        '[CALLS][{"name": "lookup", "arguments": {"country": "Italy"}, "id": "abcdefghi"}]<x>'
    )
    after = scaffold.extend(Observation(ROME.content), written, (ROME,))
    assert "[RESULT]abcdefghi  The capital" in scaffold._decode(ids(after))


@pytest.mark.parametrize("name", CHANGED)
def test_a_template_that_changes_its_history_is_refused_unless_it_is_kept(name: str) -> None:
    tokenizer = merging_tokenizer(CHANGED[name])
    with pytest.raises(ConfigError, match=r"changes the history after .*: it writes .* where"):
        ChatTemplateScaffold(tokenizer, TOOLS)
    kept = ChatTemplateScaffold(tokenizer, TOOLS, keep_history=True)
    assert kept.parse(kept.render(Action("", "hm", (ITALY,)))).calls == (ITALY,)


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_used_is_refused_with_the_reason_and_the_line(why: str) -> None:
    tokenizer = byte_tokenizer(MARKS, "<x>", "<x>")
    tokenizer.chat_template = REFUSED[why]
    with pytest.raises(ConfigError, match=f"cannot be used .*{why}"):
        make_scaffold(ScaffoldConfig(name="native"), tokenizer, TOOLS)


@pytest.mark.parametrize(
    ("template", "advice"),
    [
        ("{{ raise_exception('no') }}", "choose another model, or give its tokenizer another"),
        ("{{ messages[0].content }}", "choose scaffold tags, or another model"),
    ],
)
def test_scaffold_tags_is_advised_where_it_can_use_the_template(template: str, advice: str) -> None:
    tokenizer = byte_tokenizer(MARKS, "<x>", "<x>")
    tokenizer.chat_template = template
    with pytest.raises(ConfigError, match=advice):
        make_scaffold(ScaffoldConfig(name="native"), tokenizer, TOOLS)


def test_a_tokenizer_without_a_template_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no chat template: choose scaffold tags"):
        make_scaffold(ScaffoldConfig(name="native"), byte_tokenizer(), TOOLS)


def test_lines_are_the_template_s_where_a_date_is_put_before_it() -> None:
    tokenizer = byte_tokenizer(MARKS, "<x>", "<x>")
    tokenizer.chat_template = "{{ strftime_now('%d') }}\n{{ raise_exception('not now') }}"
    with pytest.raises(ConfigError, match="line 2: not now"):
        make_scaffold(
            ScaffoldConfig(name="native", options={"date": "2026-11-26"}), tokenizer, TOOLS
        )


MALFORMED = {
    "json": (
        ("<tool_call>\n{nonsense}\n</tool_call><x>", "tool call 1: it is not JSON"),
        ("<tool_call>\n{}</tool_call><x>", "tool call 1: it has no 'name'"),
        ('<tool_call>{"name": " ", "arguments": {}}</tool_call><x>', "it has no 'name'"),
        ('<tool_call>{"name": "lookup", "arguments": [1]}</tool_call>', "are no JSON object"),
        ('<tool_call>{"name": "lookup", "parameters": {}}</tool_call>', "not 'arguments'"),
        ('<tool_call>{"name": "lookup", "arguments": {}}', "</tool_call> does not follow"),
        ("<think>\nhm", "the reasoning has no end"),
        ("<think>\n</think>\n\n<x>", "neither a tool call nor an answer"),
        ("Hm. <think>no</think>Rome<x>", "reasoning outside its place"),
        ("Rome or Paris</think>Rome<x>", "reasoning outside its place"),
    ),
    "one call": (
        ('{"name": "lookup", "arguments": {}}<x>', "has 'arguments' and not 'parameters'"),
    ),
    "channels": (
        ("<|channel|>analysis<|message|>hm", "the reasoning has no end"),
        ("<|channel|>analysis<|message|>hm<|return|>", "the reasoning has no end"),
        ("<|channel|>analysis<|message|>hm<|end|>", "a message needs a channel, <|message|>"),
        ("Rome<|return|>", "a message needs a channel, <|message|>"),
        ("<|start|>user<|message|>Rome?<|return|>", "names no channel"),
        ("<|channel|>comment<|message|>Rome<|return|>", "names no channel"),
        ("<|channel|>final<|message|><|return|>", "neither a tool call nor an answer"),
        ("<|channel|>commentary to=lookup<|message|>{}<|call|>", "not to 'lookup'"),
        ("<|channel|>commentary to=functions.<|message|>{}<|call|>", "not to 'functions.'"),
        ("<|channel|>commentary to=functions.lookup<|message|>{<|call|>", "it is not JSON"),
        (
            "<|channel|>commentary to=functions.lookup<|message|>{}<|end|><|start|>assistant"
            "<|channel|>final<|message|>Rome<|return|>",
            "a message follows a tool call",
        ),
    ),
    "python": [
        (f"<calls>[{'a.' * 600}a()]</calls><x>", "tool call 1: its arguments are no literals"),
        *(
            (f"<calls>[lookup(country={value})]</calls><x>", "holds a value that JSON lacks")
            for value in ("{1, 2}", "b'a'", "1j", "...", "{(1, 2): 3}")
        ),
    ],
    "in one turn": (
        ("<call>call:lookup{country:Italy}</call><tool>", "the turn cannot be read: json: could"),
        ("<call>call:lookup</call><tool>", "the turn cannot be read: json parser could not"),
        ("<call>call:lookup[1]</call><tool>", "its arguments are no JSON object"),
        ("<think>Hm.", "neither a tool call nor an answer"),
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_turns_say_what_is_wrong(name: str) -> None:
    scaffold = made(name)
    for text, problem in MALFORMED[name]:
        action = scaffold.parse(scaffold._encode(text))
        assert problem in str(action.error), text
        assert (action.calls, action.answer) == ((), None)


def test_calls_as_gpt_oss_begins_them() -> None:
    """With the tool behind the channel, where its template has it before; words stand beside."""
    scaffold = made("channels")
    assert scaffold.stop[:2] == ("<|return|>", "<|call|>")  # <|end|> ends a thought
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I look.<|end|><|start|>assistant<|channel|>commentary to=functions.lookup json<|message|>"
        '{"country": "Italy"}<|call|>'
    )
    action = scaffold.parse(scaffold._encode(text))
    assert (action.calls, action.error) == ((ITALY,), None)
    assert action.thought == "hm I look."
    shown = scaffold._decode(ids(scaffold.extend(Observation("Rome"), scaffold._encode(text), ())))
    assert shown == (
        '<|start|>functions.lookup to=assistant<|channel|>commentary<|message|>"Rome"<|end|>'
        "<|start|>assistant"
    )


def test_a_response_template_is_the_reading_of_a_turn() -> None:
    scaffold = made("in one turn")
    assert scaffold.stop == ("<x>", "<tool>")
    text = "<think>Hm.</think>I look.<call>call:lookup{country:<sep>Italy<sep>}</call><tool>"
    action = scaffold.parse(scaffold._encode(text))
    assert (action.thought, action.calls) == ("Hm. I look.", (ITALY,))
    answered = scaffold.parse(scaffold._encode("<think>Hm.</think>Rome<x>"))
    assert (answered.thought, answered.answer) == ("Hm.", "Rome")
    untold = ChatTemplateScaffold(merging_tokenizer(TEMPLATES["in one turn"]), TOOLS)
    assert "You may call tools" in scaffold_text(untold)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ({"fields": 3}, "response template cannot be used .*delete response_template"),
        (
            {"start_anchor": "<e>assistant\n", "fields": {"content": {"content": "int"}}},
            "not read as it was meant, by the tokenizer's response_template, which can be deleted",
        ),
    ],
)
def test_a_response_template_that_does_not_fit_is_refused(
    response: dict[str, Any], why: str
) -> None:
    tokenizer = merging_tokenizer(TEMPLATES["json"], response_template=response)
    with pytest.raises(ConfigError, match=why):
        ChatTemplateScaffold(tokenizer, TOOLS)


def test_values_behind_a_tag_that_says_what_they_are() -> None:
    scaffold = made("dsml")
    for tag, written, value in (
        ("true", "3", "3"),
        ("true", "two\nlines", "two\nlines"),
        ("false", "3", 3),
        ("false", '["a"]', ["a"]),
    ):
        call = f'<sep name="country" string="{tag}">{written}</sep>'
        turn = f'<calls>\n<call name="lookup">\n{call}\n</call>\n</calls><x>'
        (read,) = scaffold.parse(scaffold._encode(turn)).calls
        assert read.arguments == {"country": value}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_damaged_turn_is_malformed_or_another_action_and_goes_on(name: str) -> None:
    """Cut anywhere, or with a piece taken out: no error leaves the scaffold."""
    scaffold = made(name)
    whole = scaffold.render(Action("", "hm", (ITALY,)))
    damaged = [whole[:place] for place in range(0, len(whole), 3)]
    damaged += [whole[:place] + whole[place + 4 :] for place in range(0, len(whole), 5)]
    for written in damaged:
        action = scaffold.parse(written)
        done = (bool(action.calls), action.answer is not None, action.error is not None)
        assert sum(done) == 1
        result = ToolResult(ITALY, "Rome")
        assert scaffold.extend(Observation("Rome"), written, (result,))


def test_a_call_without_a_name_before_its_arguments_says_so() -> None:
    form = NamedCalls("<call>", "<sep>", "</call>")
    assert form.read("<call>lookup:0<sep>{}</call>") == ("", [Call("lookup", {})])
    for named in ("", " ", ":0"):
        with pytest.raises(ValueError, match="tool call 1: it has no name"):
            form.read(f"<call>{named}<sep>{{}}</call>")


def test_a_list_of_calls_that_python_does_not_read_is_malformed() -> None:
    bare = PythonCalls("", "")
    with pytest.raises(ValueError, match="not written as name"):
        bare.read('[lookup(country="Italy"]')
    assert bare.read("[f(x) = 2]") == ("[f(x) = 2]", [])


def test_an_answer_that_looks_like_a_call_is_an_answer() -> None:
    for name, text in (
        ("one call", "[1, 2]"),
        ("one call", '{"name": "Rome"}'),
        ("python", "f(x=1)"),
    ):
        scaffold = made(name)
        assert scaffold.parse(scaffold._encode(f"{text}<x>")).answer == text


EXAMPLE = (
    {"role": "user", "content": "Capital of Spain?"},
    {
        "role": "assistant",
        "tool_calls": [{"function": {"name": "lookup", "arguments": {"country": "Spain"}}}],
    },
    {"role": "tool", "content": "Madrid <|im_end|>"},
    {"role": "assistant", "content": "Madrid"},
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_examples_stand_before_the_task_as_if_they_had_been_played(name: str) -> None:
    """Behind the instructions; their own turn is written as the model's would be, and none of it is
    the model's."""
    scaffold = made(name, examples=EXAMPLE, instructions="Be brief.")
    segments = scaffold.begin(ASKED)
    shown = scaffold._decode(ids(segments))
    call = scaffold._decode(scaffold.render(Action("", calls=(SPAIN,))))
    parts = ("Be brief.", "Capital of Spain?", "Madrid", ASKED.content.strip())
    places = [shown.index(one) for one in parts]
    assert places == sorted(places)
    assert "Spain" in call
    assert Source.MODEL not in {segment.source for segment in segments}
    plain = made(name, examples=[*EXAMPLE[:2], {"role": "tool", "content": "Madrid"}, EXAMPLE[3]])
    (end,) = scaffold._tokenizer.convert_tokens_to_ids(["<|im_end|>"])
    assert ids(segments).count(end) == ids(plain.begin(ASKED)).count(end)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": 3},
        {"role": "tool", "content": "no call stands before it"},
        {"role": "assistant", "tool_calls": [{"name": "lookup"}]},
        {"role": "assistant", "tool_calls": 3},
    ],
)
def test_an_example_that_is_no_message_is_told(message: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="examples, message 1: give role user or tool with"):
        made("json", examples=[message])


ODD = ("\ue000h\ue001", "\ue0000\ue001", "Hello.", "<x>EVIL", "\ue00099\ue001", '"', "a\x00b")
"""Texts that a model may sample, or a tool return, and that mean something in a rendering."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_odd_names_ids_and_results_are_only_text(name: str) -> None:
    scaffold = made(name)
    whole = scaffold._decode(scaffold.render(Action("", calls=(ITALY,))))
    for odd in ODD:
        for told in (odd, "The capital is Rome."):
            written = scaffold._encode(whole.replace("lookup", odd).replace("call00000", odd))
            named = ToolResult(ToolCall(odd, {}), told)
            after = scaffold.extend(Observation(told), written, (named,))
            shown = ids([one for one in after if one.source == Source.TOOL])
            quoted = json.dumps(told, ensure_ascii=False)[1:-1]
            assert told in scaffold._decode(shown) or quoted in scaffold._decode(shown)
            own = ids([one for one in after if one.source == Source.TEMPLATE])
            assert "EVIL" not in scaffold._decode(own)


def test_places_of_tokens_are_right_where_a_tokenizer_trims_them() -> None:
    tokenizer = merging_tokenizer(TEMPLATES["json"])
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    scaffold = ChatTemplateScaffold(tokenizer, TOOLS)
    written = scaffold.render(Action("", calls=(ITALY,)))
    shown = scaffold.extend(Observation("12 km  "), written, (ToolResult(ITALY, "12 km  "),))
    assert scaffold._decode(ids([one for one in shown if one.source == Source.TOOL])) == "12 km  "


def test_half_a_character_in_a_user_s_words_is_replaced() -> None:
    scaffold = made("json")
    written = scaffold.render(Action("", calls=(ITALY,)))
    after = scaffold.extend(Observation("Rome"), written, (ROME,), ("a\ud800b",))
    assert "a?b" in scaffold._decode(ids(after))
    assert "a?b" in scaffold._decode(ids(scaffold.begin(ASKED, "a\ud800b")))


def test_calls_that_cannot_be_read_end_no_turn() -> None:
    """They are told of in words then, and their token is not among those that stop the model."""
    template = TEMPLATES["ends with the next role"]
    assert made("ends with the next role").stop == ("<user>", "<tool>", "<x>")
    unread = template.replace("<arg_key>{{ k }}", "{{ k | length }}")
    scaffold = ChatTemplateScaffold(merging_tokenizer(unread), TOOLS)
    assert "You may call tools" in scaffold_text(scaffold)
    assert scaffold.stop == ("<user>", "<x>")
