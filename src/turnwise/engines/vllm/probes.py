"""The probes of parity, asked of a server of vLLM.

Not here: what is made of the answers (`engines/parity.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from turnwise.engines.parity import Probe
from turnwise.engines.vllm.client import Json
from turnwise.engines.vllm.completions import Answer, read_answer, request_body


async def sample_probes(
    ask: Callable[[Json], Awaitable[Json]],
    model: str,
    probes: Sequence[Probe],
    checked: Callable[[Answer], object],
) -> list[Probe]:
    """The probes with what a server samples after them, which knows its weights as `model`;
    `checked` is called with each answer."""

    async def sample(probe: Probe) -> Probe:
        body = request_body(model, probe.prompt, probe.sampling, probe.sampling.max_tokens, ())
        body["sampling_params"]["ignore_eos"] = True
        answer = read_answer(await ask(body))
        checked(answer)
        return replace(probe, tokens=answer.tokens, logprobs=answer.logprobs)

    return list(await asyncio.gather(*map(sample, probes)))
