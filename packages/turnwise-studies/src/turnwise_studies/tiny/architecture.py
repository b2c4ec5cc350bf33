"""The embedded model `tiny`: a Qwen3-architecture model small enough to train on two cores.

Three checkpoints of it come with turnwise, each with the figures of its build. `tiny` knows words,
copying, looking up among lines and the tags, and has seen no question and no search; `turnwise
build-tiny` makes it again from nothing. `tiny_search` has imitated a perfect search agent in
made-up libraries as well; neither has seen a task. `tiny_demo` is `tiny` after a cold start on
mediocre demonstrations of the recipe `demo`.
"""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast, Qwen3Config

from turnwise.errors import ConfigError

VOCABULARY = 1024
CONTEXT = 1024
PAD, END = "<|pad|>", "<|endoftext|>"
TAGS = ("think", "search", "information", "answer")
SPECIAL_TOKENS = [PAD, END, *(f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/"))]


HEAD = 32


@dataclass(frozen=True)
class Shape:
    """The size of a model like `tiny`: 2.2 million parameters as it is; 5.2 with a width of 256 and
    6 layers, 15 with 384 and 8. Raises ConfigError for a width that is no multiple of 32."""

    width: int = 192
    layers: int = 4

    def __post_init__(self) -> None:
        if self.width < HEAD or self.width % HEAD or self.layers < 1:
            raise ConfigError(
                f"a width of {self.width} and {self.layers} layers make no model: a width is a "
                f"multiple of {HEAD}, and there is one layer at least"
            )


TINY = Shape()


def tiny_config(tokenizer: PreTrainedTokenizerFast, shape: Shape = TINY) -> Qwen3Config:
    """A model of that shape: heads of width 32, 8/3 as wide between attention layers, untied
    embeddings."""
    heads = shape.width // HEAD
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=shape.width * 8 // 3,
        num_hidden_layers=shape.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
