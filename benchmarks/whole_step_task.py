"""The task of `whole_step.py`: a model whose every turn is one tool call of a known length.

The weights are random but for the embeddings and the output layer, which make a chain: after a line
break `<think>`, then some words, `</think>`, `<search>`, some words, `</search>`. Each word is
drawn from a few that only this place of a turn has, about equally likely. So whoever samples from
these weights does the same work, and yet no two trajectories are the same. The tokenizer is that of
`tiny`, with a chat template that writes what turnwise's scaffold of tags writes, and the template
by which transformers reads a call back. Not here: who samples and learns (`whole_step_*.py`).
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engine_measurements import smollm2_config
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from turnwise_studies.tiny.architecture import CONTEXT, tiny_config

TURNS = 4
"""The last one's call is beyond the limit, and not run."""
TAGS = 4
"""Tokens of a turn that are no words; of these a quarter is the query."""
INSTRUCTIONS = "Answer the question.\n"
NAMES = ("TarFile", "Thread", "Decimal", "Path", "Queue", "Random", "Socket", "Template")
FOUND = (
    "The class stands in one of the modules of the standard library. It is made with a name, and "
    "with a mode."
)
"""What every search returns."""
CHAT_TEMPLATE = r"""
{%- for message in messages -%}
{%- if message.role == "tool" -%}
{{ "\n<information> " + message.content + "</information>\n" }}
{%- elif message.role == "assistant" -%}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
{%- set made = call.function -%}
{{ "<" + made.name + "> " + made.arguments | tojson + "</" + made.name + ">" }}
{%- endfor -%}
{%- else -%}
{{ message.content + "\n" }}
{%- endif -%}
{%- endfor -%}
"""
SEARCH = {"name": "search", "arguments": {"query": "{content}"}}
RESPONSE_TEMPLATE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor_pattern": r"\n\Z",
    "fields": {
        "content": {"content": "text"},
        "thinking": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open": "<search>",
            "close": "</search>",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": SEARCH},
        },
    },
}
LOUDNESS, MARGIN = 40.0, 2.0
"""Of the chain over what the layers add, and of its next tokens over all others: 25 nats."""


def write_task(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    tasks: int,
    group: int,
    turn_tokens: int,
    make_config: Callable[..., PreTrainedConfig] = tiny_config,
    device: str = "cpu",
) -> None:
    """Model and tokenizer as every contender loads them, and `task.json`, what they have to do:
    `group` trajectories of each of `tasks` questions, of which there are eight, in turns of
    `turn_tokens`, 8 or more. The model, whose embeddings must not be tied, has the configuration
    that is made for the tokenizer, and its numbers are drawn on the device."""
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    chain = chain_of(tokenizer, turn_tokens)
    with torch.device(device):
        model = chained_model(make_config(tokenizer), tokenizer, chain)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    task = {
        "instructions": INSTRUCTIONS,
        "questions": [f"Which module defines the class {name}?" for name in NAMES[:tasks]],
        "found": FOUND,
        "group": group,
        "turns": TURNS,
        "turn_tokens": turn_tokens,
        "context": CONTEXT,
    }
    (folder / "task.json").write_text(json.dumps(task))


def chain_of(tokenizer: PreTrainedTokenizerBase, turn_tokens: int) -> list[list[int]]:
    """The tokens of each place of a turn, after those that stand before it."""
    opening, closing, call, end, line = (
        [tokenizer.convert_tokens_to_ids(tag)]
        for tag in ("<think>", "</think>", "<search>", "</search>", "Ċ")
    )
    words = [
        token
        for token in range(len(tokenizer))
        if re.fullmatch(" ?[a-z]+", tokenizer.decode([token]))
    ]
    count = turn_tokens - TAGS
    several = len(words) // count
    places = [words[place * several : (place + 1) * several] for place in range(count)]
    thought = count - count // 4
    return [line, opening, *places[:thought], closing, call, *places[thought:], end]


def small_config(tokenizer: PreTrainedTokenizerBase) -> LlamaConfig:
    """SmolLM2-135M's, but for the words: embeddings that are not tied can be a chain."""
    return smollm2_config(
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )


SHAPES: dict[str, Callable[..., PreTrainedConfig]] = {"tiny": tiny_config, "135M": small_config}


def chained_model(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, chain: list[list[int]]
) -> PreTrainedModel:
    """A model in float32: after a token of one place comes one of the next."""
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    directions = torch.linalg.qr(torch.randn(config.hidden_size, len(chain))).Q.T
    with torch.no_grad():
        for place, following, direction in zip(chain, chain[1:], directions, strict=False):
            model.model.embed_tokens.weight[place] += LOUDNESS * direction
            model.lm_head.weight[following] += MARGIN * direction
    ends = tokenizer.convert_tokens_to_ids([tokenizer.eos_token, "</search>", "</answer>"])
    model.generation_config = GenerationConfig(
        eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    return model
