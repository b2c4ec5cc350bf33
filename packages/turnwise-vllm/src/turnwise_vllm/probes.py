"""The probes of parity, asked of a server of vLLM."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from turnwise.forward.images import ImageReader
from turnwise_vllm.client import Json
from turnwise_vllm.completions import Answer, read_answer, request_body
from turnwise_vllm.images import check_read, shown
from turnwise_vllm.parity import Probe


async def sample_probes(
    ask: Callable[[Json], Awaitable[Json]],
    model: str,
    probes: Sequence[Probe],
    checked: Callable[[Answer], object],
    reader: ImageReader | None = None,
) -> list[Probe]:
    """The probes with what a server samples after them, which knows its weights as `model`;
    `checked` is called with each answer, and `reader` is that of the probes' images."""

    async def sample(probe: Probe) -> Probe:
        body = request_body(model, probe.prompt, probe.sampling, probe.sampling.max_tokens, ())
        body["sampling_params"]["ignore_eos"] = True
        found = await ask(body | shown(probe.prompt, probe.images, reader))
        check_read(found, probe.prompt, probe.images)
        answer = read_answer(found)
        checked(answer)
        return replace(probe, tokens=answer.tokens, logprobs=answer.logprobs)

    return list(await asyncio.gather(*map(sample, probes)))
