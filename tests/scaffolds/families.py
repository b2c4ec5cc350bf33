"""Tokenizers of bytes with the special tokens of model families, small models on disk, and an
environment that goes on after an answer."""

from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from tests.fakes import Letters, byte_tokenizer, small_model
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Step, Trajectory, Verdict

QWEN = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
)
FAMILIES = {
    "qwen3": QWEN,
    "qwen3.5": (*QWEN, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
    "llama-3": (
        *("<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
    ),
    "glm-4.5": (
        *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
        *("<|observation|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>"),
        *("</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>"),
    ),
    "kimi-k2": (
        *("[EOS]", "[BOS]", "<|im_assistant|>", "<|im_end|>", "<|im_middle|>", "<|im_system|>"),
        *("<|im_user|>", "<|tool_call_argument_begin|>", "<|tool_call_begin|>"),
        *("<|tool_call_end|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "minimax-m2": (
        *("[e~[", "]~!b[", "]~b]", "<think>", "</think>"),
        *("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "deepseek-v3": (
        *("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>"),
        *("<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ),
}
"""Special tokens of each, the end of text first."""


def family_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """One token a byte, and the family's special tokens."""
    special = FAMILIES[family]
    return byte_tokenizer(special, special[0], special[0])


def save_family_model(folder: Path, family: str) -> Path:
    """A random model with such a tokenizer, and room for the family's words about tools."""
    tokenizer = family_tokenizer(family)
    model = small_model(tokenizer)
    model.config.max_position_embeddings = 4096
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Talk(Letters):
    """Whatever is answered, the user asks again."""

    async def step(self, action: Action) -> Step:
        if action.answer is None:
            return await super().step(action)
        return Step(Observation("Are you sure? Say it once more, in other words.", Source.USER))

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """A success is one of its answers: what is said again may be anything."""
        verdict = await super().verify(trajectory)
        answers = trajectory.task.secret.get("answers", ())
        said = [turn.action.answer for turn in trajectory.turns]
        return replace(verdict, success=any(one in answers for one in said))
