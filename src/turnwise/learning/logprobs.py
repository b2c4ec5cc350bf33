"""Log-probabilities and entropies of given tokens under a causal language model.

The output layer is applied at the asked positions only, in chunks, so that memory does not grow
with vocabulary x length. Not here: which positions, and what they are for.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from turnwise.errors import NotSupportedError

LOGITS_PER_CHUNK = 1 << 25
"""float32 logits held at once: 128 MiB, and about three times that while differentiating."""


def token_logprobs(
    model: nn.Module,
    inputs: Tensor,
    selected: Tensor,
    targets: Tensor,
    temperature: float,
    autocast: bool,
    *,
    entropy_gradient: bool = False,
    logits_per_chunk: int = LOGITS_PER_CHUNK,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, float32[N] each, of N tokens at the sampling temperature.

    Args:
        model: a causal model of transformers, or one wrapped by peft.
        inputs: int64[B, T], padded on the right; no attention mask is needed then.
        selected: bool[B, T], the N positions that predict a target.
        targets: int64[N], in row-major order of the positions.
        temperature: logits are divided by it, as when sampling; above 0.
        autocast: run the body in bfloat16. The output layer keeps the weights' own type, because
            rounding its logits is what makes trainer and engine disagree most.
        entropy_gradient: whether the entropies can be differentiated; costs memory.
        logits_per_chunk: bounds memory; changes nothing else.
    """
    base = base_model(model)
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=autocast):
        hidden = base.get_decoder()(input_ids=inputs, use_cache=False).last_hidden_state
    hidden = hidden[selected]
    head = base.get_output_embeddings()
    score = partial(_score, head, temperature, softcapping(base), entropy_gradient)
    size = max(1, logits_per_chunk // head.weight.shape[0])
    if len(targets) <= size:
        return score(hidden, targets)
    chunks = [
        checkpoint(score, *chunk, use_reentrant=False)
        for chunk in zip(torch.split(hidden, size), torch.split(targets, size), strict=True)
    ]
    logprobs, entropies = zip(*chunks, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def base_model(model: nn.Module) -> Any:
    """The transformers model itself: what peft wraps (its adapters are inside the layers)."""
    unwrap = getattr(model, "get_base_model", None)
    return model if unwrap is None else unwrap()


def softcapping(base: Any) -> float | None:
    """Gemma's bound on logits: cap tanh(logits / cap); None for other models."""
    cap = getattr(base.config.get_text_config(), "final_logit_softcapping", None)
    return None if cap is None else float(cap)


def check_supported(model: nn.Module) -> None:
    """Compare `token_logprobs` with the model's own logits on a few tokens.

    Raises NotSupportedError for a model that does more between its last layer and its logits than
    is done here (a scale, say): trained as it is, it would silently learn from wrong numbers.
    """
    vocabulary, _ = base_model(model).get_input_embeddings().weight.shape
    device = next(model.parameters()).device
    inputs = (torch.arange(1, 9, device=device) % vocabulary)[None, :]
    selected = torch.ones_like(inputs, dtype=torch.bool)
    with torch.no_grad():
        ours, _ = token_logprobs(model, inputs, selected, inputs[0], 1.0, autocast=False)
        logits = model(input_ids=inputs, use_cache=False).logits[0].float()
    theirs = -functional.cross_entropy(logits, inputs[0], reduction="none")
    if not torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2):
        raise NotSupportedError(
            f"{type(base_model(model)).__name__} changes its logits in a way that "
            "turnwise.learning.logprobs does not know; its log-probabilities would be wrong"
        )


def _score(
    head: Any,
    temperature: float,
    cap: float | None,
    entropy_gradient: bool,
    hidden: Tensor,
    targets: Tensor,
) -> tuple[Tensor, Tensor]:
    """hidden [n, width], targets int64[n] -> log-probabilities and entropies, float32[n] each."""
    logits = head(hidden.to(head.weight.dtype)).float()
    if cap is not None:
        logits = cap * torch.tanh(logits / cap)
    if temperature != 1:
        logits = logits / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    return logprobs.gather(1, targets[:, None])[:, 0], entropy
