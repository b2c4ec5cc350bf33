"""Families' own formats, through the real package: what was sampled stays, what is new is added."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from environment_playing import rolled
from tests.fakes import Capitals, byte_tokenizer
from tests.scaffolds.families import FAMILIES, family_tokenizer
from turnwise.errors import ConfigError
from turnwise.tokens import Segment, Source
from turnwise.types import Action, Observation, Outcome, ToolCall, ToolResult, Trajectory
from turnwise_environments.scaffolds.renderers import RenderersScaffold

pytest.importorskip("renderers", reason="needs the extra renderers", exc_type=ImportError)
ENVIRONMENT = Capitals()
SILENT = ("kimi-k2", "deepseek-v3", "llama-3")
"""Families whose format writes no thoughts of its own."""


def scaffold_of(family: str, **options: object) -> RenderersScaffold:
    return RenderersScaffold(family_tokenizer(family), ENVIRONMENT.tools(), family, **options)


def call(land: str) -> ToolCall:
    return ToolCall("lookup", {"country": land})


def ids_of(segments: list[Segment]) -> list[int]:
    return [token for segment in segments for token in segment.tokens]


def read(scaffold: RenderersScaffold, tokens: list[int]) -> str:
    return scaffold._decode(tokens)


def play(
    family: str, script: list[Action]
) -> tuple[RenderersScaffold, Trajectory, list[list[int]]]:
    """An episode in which the policy does what the script says, and the histories it was given."""
    scaffold = scaffold_of(family)
    actions = iter(script)
    prompts: list[list[int]] = []

    def policy(session: str, prompt: list[int]) -> list[int]:
        prompts.append(prompt)
        return scaffold.render(next(actions))

    tasks = ENVIRONMENT.tasks("train")[:1]
    (played,) = rolled(ENVIRONMENT, scaffold, policy, tasks, max_tokens=6000, max_turn_tokens=400)
    return scaffold, played, prompts


@pytest.mark.parametrize("family", FAMILIES)
def test_an_episode_is_what_the_family_would_render(family: str) -> None:
    """The history that the engine is given grows by what it sampled and by new messages alone, and
    is what the renderer makes of the whole conversation."""
    thought = "" if family in SILENT else "look it up"
    script = [Action("", thought, calls=(call("France"),)), Action("", answer="Paris")]
    scaffold, played, prompts = play(family, script)
    assert played.outcome == Outcome.SUCCESS
    tokens = played.tokens
    own = [scaffold.render(action) for action in script]
    assert tokens.ids[tokens.mask].tolist() == own[0] + own[1]
    for (before, after), sampled in zip(pairwise(prompts), own, strict=False):
        assert after[: len(before) + len(sampled)] == before + sampled
    shown = tokens.ids[tokens.source == Source.TOOL].tolist()
    assert read(scaffold, shown).strip('"') == "The capital is Paris."  # Llama's are JSON
    asked = tokens.ids[tokens.source == Source.USER].tolist()
    assert read(scaffold, asked) == "Capital of France?"
    conversation = [
        {"role": "user", "content": "Capital of France?"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": thought,
            "tool_calls": [
                {
                    "type": "function",
                    "id": "functions.lookup:0",
                    "function": {"name": "lookup", "arguments": {"country": "France"}},
                }
            ],
        },
        {
            "role": "tool",
            "name": "lookup",
            "tool_call_id": "functions.lookup:0",
            "content": "The capital is Paris.",
        },
    ]
    rendered = scaffold._renderer.render_ids(
        conversation, tools=scaffold._specs, add_generation_prompt=True
    )
    assert read(scaffold, prompts[1]) == read(scaffold, rendered)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "llama-3"])
def test_several_calls_in_a_turn_and_a_message_for_each_result(family: str) -> None:
    script = [Action("", "both", (call("Italy"), call("Spain"))), Action("", answer="Paris")]
    scaffold, played, _ = play(family, script)
    assert played.outcome == Outcome.SUCCESS
    first = played.turns[0].action
    assert [c.arguments["country"] for c in first.calls] == ["Italy", "Spain"]
    assert [c.id for c in first.calls] == ["0.0", "0.1"]
    assert first.thought == ("" if family in SILENT else "both")
    tokens = played.tokens
    shown = read(scaffold, tokens.ids[tokens.source == Source.TOOL].tolist())
    assert shown == "The capital is Rome.The capital is Madrid."
    text = read(scaffold, tokens.ids.tolist())
    assert text.index("Rome") < text.index("Madrid")
    assert "Rome.\nThe capital" not in text, "a message for each"


@pytest.mark.parametrize("family", FAMILIES)
def test_text_from_outside_cannot_hold_a_token_of_the_familys(family: str) -> None:
    scaffold = scaffold_of(family)
    hostile = " ".join(["x", *FAMILIES[family], "y"])
    own = set(scaffold._tokenizer.added_tokens_decoder)
    calls = scaffold.render(Action("", calls=(call("Italy"),)))
    result = ToolResult(call("Italy"), hostile)
    told = Observation(hostile)
    for segments in (
        scaffold.begin(Observation(hostile, Source.USER)),
        scaffold.extend(told, calls, (result,)),
        scaffold.extend(Observation(hostile, Source.ENVIRONMENT), calls),
    ):
        foreign = [s for s in segments if s.source != Source.TEMPLATE]
        assert read(scaffold, ids_of(foreign)) == hostile
        assert not own & set(ids_of(foreign))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_that_was_cut_off_is_closed_by_the_template(family: str) -> None:
    """Whatever the model wrote, the next turn begins in order, and its tokens are as they were."""
    scaffold = scaffold_of(family)
    whole = scaffold.render(Action("", answer="I do not know"))
    corrected = Observation("wrong", Source.ENVIRONMENT)
    ended = ids_of(scaffold.extend(corrected, whole))
    cut = ids_of(scaffold.extend(corrected, whole[:-2]))
    assert len(cut) > len(ended) - 2
    assert cut[-1] == ended[-1] == scaffold._prompt[-1]


@pytest.mark.parametrize("family", ["qwen3", "qwen3.5", "minimax-m2"])
def test_a_turn_that_ended_inside_a_thought_is_malformed_and_goes_on(family: str) -> None:
    scaffold = scaffold_of(family)
    begun = "" if read(scaffold, scaffold._prompt).rstrip().endswith("<think>") else "<think>\n"
    end = scaffold._closed[-1]
    written = [*scaffold._encode(f"{begun}hm"), end]
    action = scaffold.parse(written)
    assert "the reasoning has no end" in action.error
    after = scaffold.extend(Observation(action.error, Source.ENVIRONMENT), written)
    assert {segment.source for segment in after} == {Source.TEMPLATE, Source.ENVIRONMENT}
    assert ids_of(after)[-1] == scaffold._prompt[-1]


def test_malformed_calls_say_what_is_wrong() -> None:
    scaffold = scaffold_of("qwen3")
    for text, problem in (
        ("<tool_call>\n{nonsense}\n</tool_call><|im_end|>", "tool call 1: invalid json"),
        ('<tool_call>\n{"arguments": {}}\n</tool_call><|im_end|>', "tool call 1: missing name"),
        ('<tool_call>\n{"name": "lookup", "arguments": [1]}\n</tool_call>', "and an object"),
        ('<tool_call>\n{"name": ["a"], "arguments": {}}\n</tool_call>', "needs a name"),
        ('<tool_call>\n{"name": " ", "arguments": {}}\n</tool_call>', "needs a name"),
        ('<tool_call>\n{"name": "lookup"', "tool call 1: unclosed block"),
        ("<think>\n</think>\n\n<|im_end|>", "neither a tool call nor an answer"),
        (f"<tool_call>\n{'[' * 9000}\n</tool_call><|im_end|>", "cannot be read: maximum recurs"),
        (f"<tool_call>\n{'1' * 5000}\n</tool_call><|im_end|>", "cannot be read: Exceeds the limit"),
    ):
        written = scaffold._encode(text)
        action = scaffold.parse(written)
        assert action.error is not None, text
        assert problem in action.error
        assert not action.calls
        assert action.answer is None
        assert scaffold.extend(Observation(action.error, Source.ENVIRONMENT), written)


def test_turns_end_where_the_family_ends_them() -> None:
    assert set(scaffold_of("llama-3").stop) == {"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"}
    assert set(scaffold_of("glm-4.5").stop) == {"<|user|>", "<|observation|>", "<|endoftext|>"}


def test_instructions_are_the_system_message_and_templates_have_switches() -> None:
    scaffold = scaffold_of("qwen3", instructions="Be brief.", template={"enable_thinking": False})
    text = read(scaffold, ids_of(scaffold.begin(Observation("Who?", Source.USER))))
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize("family", ["qwen3", "qwen3.5", "glm-4.5"])
def test_without_thinking_a_script_is_read_as_it_was_meant(family: str) -> None:
    """The prompt has closed the thought there: one that was rendered after it ended the turn."""
    scaffold = scaffold_of(family, template={"enable_thinking": False})
    for action in (
        Action("", "look it up", calls=(call("France"),)),
        Action("", "that is it", answer="Paris"),
    ):
        read_back = scaffold.parse(scaffold.render(action))
        assert read_back.error is None
        assert read_back.thought == ""
        assert read_back.answer == action.answer
        assert [c.arguments for c in read_back.calls] == [c.arguments for c in action.calls]


def test_a_family_that_does_not_read_what_it_writes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As gpt-oss' does not in renderers 0.1.12: every turn would be malformed."""
    nothing = SimpleNamespace(
        content="", reasoning_content="", reasoning_complete=True, tool_calls=[]
    )
    renderer = type(scaffold_of("llama-3")._renderer)
    monkeypatch.setattr(renderer, "parse_response", lambda *_, **__: nothing)
    with pytest.raises(ConfigError, match="does not read the turns that it writes"):
        scaffold_of("llama-3")


def test_what_cannot_be_made_is_one_line_that_says_what_to_do() -> None:
    tools = ENVIRONMENT.tools()
    with pytest.raises(ConfigError, match=r"set scaffold\.options\.family to one of .*qwen3"):
        RenderersScaffold(byte_tokenizer(), tools)
    with pytest.raises(ConfigError, match=r"set scaffold\.options\.family to one of"):
        RenderersScaffold(byte_tokenizer(), tools, "default")
    with pytest.raises(ConfigError, match=r"family qwen3: Special token '<\|im_start\|>' not"):
        RenderersScaffold(byte_tokenizer(), tools, "qwen3")
    with pytest.raises(ConfigError, match="family qwen3: "):
        scaffold_of("qwen3", template={"enable_thought": False})
