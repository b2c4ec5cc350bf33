"""The embedded model `tiny`: a Qwen3-architecture model small enough to train on two cores.

Two checkpoints of it come with the package, each with the figures of its build. `tiny` knows
words, copying, looking up among lines and the tags, and has seen no question and no search;
`turnwise build-tiny` makes it again from nothing (see synthesis/tiny.py). `tiny_search` has
imitated a perfect search agent in made-up libraries as well. Neither has seen a task. Not here:
where they lie (shipped.py), loading (load.py).
"""

from transformers import PreTrainedTokenizerFast, Qwen3Config

VOCABULARY = 1024
CONTEXT = 1024
PAD, END = "<|pad|>", "<|endoftext|>"
TAGS = ("think", "search", "information", "answer")
SPECIAL_TOKENS = [PAD, END, *(f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/"))]


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """2.2 million parameters: four layers of width 192, untied embeddings."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
