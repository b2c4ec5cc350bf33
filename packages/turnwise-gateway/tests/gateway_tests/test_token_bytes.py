"""The bytes of tokens join to the text, for both ways in which vocabularies write bytes."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.fakes import byte_tokenizer
from turnwise_gateway.token_bytes import TokenBytes

TEXT = "It is Zürich — 時間 👩‍🚀"


def fallback_tokenizer() -> PreTrainedTokenizerFast:
    """Letters, spaces as ▁, and bytes for what has no letter."""
    known = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"Itisch"]
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys(known))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@pytest.mark.parametrize("make", [byte_tokenizer, fallback_tokenizer])
def test_the_bytes_of_tokens_join_to_the_text(make: type) -> None:
    tokenizer = make()
    of = TokenBytes(tokenizer)
    tokens = tokenizer.encode(TEXT, add_special_tokens=False)
    assert b"".join(of(token) for token in tokens).decode() == TEXT
    assert len(tokens) > len(TEXT)


def test_a_special_token_is_its_name() -> None:
    tokenizer = byte_tokenizer()
    assert TokenBytes(tokenizer)(tokenizer.eos_token_id) == tokenizer.eos_token.encode()
