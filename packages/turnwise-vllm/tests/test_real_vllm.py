"""The engine over a real vLLM on a CPU: `make test-vllm`, which installs it (3.5 GB) in an
environment of its own first. Minutes, since each server takes one to start."""

import asyncio
import base64
import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from transformers import Qwen3ForCausalLM

from real_vllm import ARGUMENTS, LIMIT, drive, processes
from tests.forward.models_for_tests import reference_logprobs
from turnwise.config import ModelConfig
from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.errors import RunStoppedError
from turnwise.models.load import load_model
from turnwise_vllm.engine import VllmEngine
from turnwise_vllm.process import ServerProcess
from turnwise_vllm.sending import Part
from vllm_driving import change, play, teach

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]


def prompts(tokenizer: Any) -> list[list[int]]:
    texts = [f"<think>Which module has entry {n}?</think>\n<search>" for n in range(6)]
    return [tokenizer(text)["input_ids"] for text in texts]


def test_an_own_server_samples_what_is_trained_and_survives_kill_9(
    tmp_path: Path, python: str
) -> None:
    model, tokenizer = load_model(ModelConfig(name="tiny"))
    stop = ("</search>", "</answer>")
    options = {"max_tokens": 40, "temperature": 0.8, "top_p": 0.9, "stop": stop}

    async def turns(engine: VllmEngine) -> list[Completion]:
        samplings = [Sampling(seed=2**64 - 1 - n, **options) for n in range(6)]
        asked = zip(prompts(tokenizer), samplings, strict=True)
        return await asyncio.gather(
            *(play(engine, prompt, one, str(n)) for n, (prompt, one) in enumerate(asked))
        )

    async def body(engine: VllmEngine) -> None:
        for version in (0, 1):
            await engine.load_weights({}, version)
            print(f"files, version {version}: parity {engine.parity:.1e}")
            assert engine.parity < 1e-4
            change(model, version)
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(fresh.pop(0))
        await engine.load_weights({}, 2)
        calm = await turns(engine)
        reasons = {turn.stop_reason for turn in calm}
        assert reasons & {StopReason.STOP_STRING, StopReason.END_OF_TEXT}
        for turn in calm:
            assert set(turn.version) == {2}
            if turn.stop_reason == StopReason.STOP_STRING:
                text = tokenizer.decode(turn.tokens)
                assert text.endswith(stop)
        options.update(max_tokens=200, stop=(), temperature=2.0, top_p=1.0)
        calm = await turns(engine)
        assert max(len(turn.tokens) for turn in calm) > 100
        victims = processes(str(tmp_path))
        again = asyncio.create_task(turns(engine))
        await asyncio.sleep(0.1)
        for process in victims:
            os.kill(process, signal.SIGKILL)
        after = await again
        assert engine.fleet.restarts == 1
        same = [
            one.tokens[:20] == other.tokens[:20] for one, other in zip(calm, after, strict=True)
        ]
        assert sum(same) >= 5  # what is sampled together changes the last bits
        plain = await play(engine, prompts(tokenizer)[0], Sampling(20, seed=1), "plain")
        history = [*prompts(tokenizer)[0], *plain.tokens]
        expected = reference_logprobs(model, history, len(plain.tokens), 1.0)
        assert list(plain.logprobs) == pytest.approx(expected, abs=1e-3)

    fresh = [weight.detach().clone() for weight in model.parameters()]
    drive(tmp_path, model, tokenizer, body, python=python, arguments=ARGUMENTS)


def test_turns_go_on_with_new_weights_in_the_middle_of_them(tmp_path: Path, python: str) -> None:
    model, tokenizer = load_model(ModelConfig(name="tiny"))
    models = {}

    async def body(engine: VllmEngine) -> None:
        await engine.load_weights({}, 0)
        models[0] = copy.deepcopy(model)
        found: list[tuple[list[int], Completion]] = []
        updated = asyncio.Event()

        async def turn_after_turn(number: int, prompt: list[int]) -> None:
            while not updated.is_set():
                sampling = Sampling(200, seed=len(found), temperature=2.0)
                found.append((prompt, await play(engine, prompt, sampling, str(number))))

        lanes = asyncio.gather(*map(turn_after_turn, range(6), prompts(tokenizer)))
        change(model)
        models[1] = copy.deepcopy(model)
        await engine.load_weights({}, 1)
        updated.set()
        assert engine.parity < 1e-4
        await lanes
        mixed = [turn for _, turn in found if len(set(turn.version)) == 2]
        assert mixed, [(len(turn.tokens), set(turn.version)) for _, turn in found]
        gaps = []
        for prompt, turn in found:
            count = len(turn.tokens)
            assert list(turn.version) == sorted(turn.version)
            history = [*prompt, *turn.tokens]
            own = [reference_logprobs(models[version], history, count, 2.0) for version in (0, 1)]
            for place, version in enumerate(turn.version):
                gaps.append(abs(turn.logprobs[place] - own[version][place]))
        told = f"{len(mixed)} of {len(found)} turns have tokens of both versions"
        print(f"{told}; largest gap of {len(gaps)} tokens to their own version: {max(gaps):.1e}")
        assert max(gaps) < 1e-3
        assert engine.fleet.restarts == 0

    drive(tmp_path, model, tokenizer, body, python=python, arguments=ARGUMENTS, in_flight=True)


def test_tied_embeddings_do_not_go_stale(tmp_path: Path, python: str) -> None:
    trained, tokenizer = load_model(ModelConfig(name="tiny"))
    trained.config.tie_word_embeddings = True
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(trained.config)
    assert model.lm_head.weight is model.model.embed_tokens.weight

    async def body(engine: VllmEngine) -> None:
        for version in range(3):
            await engine.load_weights({}, version)
            assert engine.parity < 1e-4
            change(model, version)

    drive(tmp_path, model, tokenizer, body, python=python, arguments=ARGUMENTS)


def test_adapters_alone_reach_a_server_under_a_new_name_each_time(
    tmp_path: Path, python: str
) -> None:
    wrapped, tokenizer = load_model(ModelConfig(name="tiny", lora_rank=4))
    model: Any = wrapped.get_base_model()

    async def body(engine: VllmEngine) -> None:
        for version in range(3):
            await engine.load_weights({}, version)
            print(f"adapters, version {version}: parity {engine.parity:.1e}")
            assert engine.parity < 1e-4
            if version < 2:
                teach(model, version)
        victims = processes(str(tmp_path))
        turn = asyncio.create_task(
            play(engine, prompts(tokenizer)[0], Sampling(200, seed=1, temperature=2.0), "one")
        )
        await asyncio.sleep(0.1)
        for process in victims:
            os.kill(process, signal.SIGKILL)
        assert set((await turn).version) == {2}
        assert engine.fleet.restarts == 1

    settings = {"python": python, "arguments": ARGUMENTS, "transport": "adapters"}
    drive(tmp_path, model, tokenizer, body, **settings)


class NoGpu:
    """A sender without a GPU: the requests go out, and nothing beside them."""

    def __init__(self, part: dict[str, Any]) -> None:
        self._part = part

    def invitation(self, workers: int) -> dict[str, Any]:
        assert workers == 1
        if self._part:
            return {"packed": True}
        shared = base64.b64encode(bytes(128)).decode()
        return {"nccl_unique_id_b64": shared, "rank_offset": 1, "world_size": 2}

    def join(self) -> None:
        pass

    def parts(self, weights: Any) -> Any:
        yield Part(self._part, lambda: None)


HANDLES = base64.b64encode(pickle.dumps({"GPU": ()})).decode()


@pytest.mark.parametrize(
    ("transport", "part", "refused"),
    [
        ("nccl", {}, "/init_weight_transfer_engine: 500 .*Cannot access accelerator device"),
        (
            "ipc",
            {
                "names": ["lm_head.weight"],
                "dtype_names": ["float32"],
                "shapes": [[1024, 192]],
                "tensor_sizes": [4],
                "ipc_handles_pickled": HANDLES,
            },
            "/update_weights: 500 ",
        ),
    ],
)
def test_a_cpu_takes_part_in_a_transfer_up_to_the_collective(
    tmp_path: Path, python: str, transport: str, part: dict[str, Any], refused: str
) -> None:
    """The phases before it are answered, what it refuses is said, and the server goes on."""
    model, tokenizer = load_model(ModelConfig(name="tiny"))

    async def body(engine: VllmEngine) -> None:
        with pytest.raises(RunStoppedError, match=refused) as caught:
            await engine.load_weights({}, 0)
        print(f"{transport}: {caught.value}")
        (replica,) = engine.fleet.replicas
        async with httpx2.AsyncClient(base_url=replica.url) as http:
            assert (await http.get("/is_paused")).json() == {"is_paused": False}
            assert (await http.post("/start_weight_update")).status_code == 200  # none is left open

    settings = {"python": python, "arguments": ARGUMENTS, "transport": transport}
    drive(tmp_path, model, tokenizer, body, sender=lambda: NoGpu(part), **settings)


def test_a_running_server_is_used_and_one_of_another_shape_stops_the_run(
    tmp_path: Path, python: str
) -> None:
    model, tokenizer = load_model(ModelConfig(name="tiny"))
    model.save_pretrained(tmp_path / "served")
    tokenizer.save_pretrained(str(tmp_path / "served"))
    options = "--dtype float32 --logprobs-mode processed_logprobs --enforce-eager"
    options += " --enable-scale-out"
    server = ServerProcess(
        python, [*options.split(), "--max-model-len", str(LIMIT)], {}, tmp_path / "server.log"
    )
    asyncio.run(server.start(tmp_path / "served"))
    other = model.config.to_dict() | {"intermediate_size": 256}
    smaller = Qwen3ForCausalLM(type(model.config)(**other))

    async def good(engine: VllmEngine) -> None:
        await engine.load_weights({}, 7)
        turn = await play(engine, prompts(tokenizer)[0], Sampling(4, seed=1), "one")
        assert turn.version == [7] * 4
        change(model)
        await engine.sleep()  # on a CPU nothing is given back, but the server stops and goes on
        await engine.load_weights({}, 8)
        turn = await play(engine, prompts(tokenizer)[0], Sampling(4, seed=1), "two")
        assert turn.version == [8] * 4

    async def bad(engine: VllmEngine) -> None:
        with pytest.raises(RunStoppedError) as caught:
            await engine.load_weights({}, 0)
        assert "\n" not in str(caught.value)
        assert "the weights were not taken" in str(caught.value)

    try:
        wait_for(server)
        settings = {"urls": (server.url,), "start_seconds": 60, "colocated": True}
        drive(tmp_path / "one", model, tokenizer, good, **settings)
        assert asyncio.run(server.running())
        drive(tmp_path / "two", smaller, tokenizer, bad, **settings)
    finally:
        asyncio.run(server.stop())


def wait_for(server: ServerProcess) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        assert asyncio.run(server.running()), asyncio.run(server.problem())
        try:
            if httpx2.get(f"{server.url}/health").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.5)
    raise TimeoutError


def test_a_run_goes_on_after_kill_9_and_is_resumed(tmp_path: Path, python: str) -> None:
    """As a user has it: the command line, a shipped recipe, two runs."""
    run = tmp_path / "run"
    settings = (
        f"engine=vllm engine.servers.python={python} "
        'engine.servers.arguments=["--enforce-eager"] threads=1 sft.steps=1 '
        "sft.demonstrations.count=16 train.steps=6 train.tasks_per_step=2 train.group_size=4 "
        "train.checkpoint_every=1 "
        "train.max_staleness=1 evaluation.tasks=0"
    )
    command = [sys.executable, "-m", "turnwise", "train"]
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(
            [*command, "search", *settings.split(), "--run", str(run)], stdout=log, stderr=log
        )
        wait_for_step(run, 2, first)
        for process in processes(str(run)):
            os.kill(process, signal.SIGKILL)
        wait_for_step(run, 4, first)
        first.kill()  # and so is the run itself: its server has to end with it
        first.wait()
    deadline = time.monotonic() + 60
    while processes(str(run)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not processes(str(run))
    assert b"is brought up again" in (tmp_path / "log").read_bytes()
    subprocess.run([*command, "--resume", str(run)], check=True, timeout=600)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5, 6]
    assert all(line["rollout/ungraded"] == 0 for line in metrics)
    assert all(line["staleness/max"] <= 1 for line in metrics)
    assert not processes(str(run))


def wait_for_step(run: Path, step: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 900
    file = run / "metrics.jsonl"
    while time.monotonic() < deadline:
        if file.exists() and len(file.read_text().splitlines()) >= step:
            return
        assert process.poll() is None, (run.parent / "log").read_text()[-2000:]
        time.sleep(0.2)
    raise TimeoutError
