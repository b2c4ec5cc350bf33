"""An engine whose model need not be able to do anything: it draws answers, and replies to a judge's
requests, and says truly with which log-probabilities the model would have written them; where
some tokens are left out, among four at most."""

import json

import torch

from turnwise.engines.base import Completion, StopReason
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.tokens import KeptTokens

ANSWERS = "words and words", "a1b2", "0123456789", "0123456789 0123456789 0123456789"


class ScriptedJudge(EmbeddedEngine):
    """Answers differ in their letters; replies are right, wrong or malformed."""

    @classmethod
    def build(cls, setup):
        engine = cls(
            setup.model,
            setup.tokenizer,
            max_sequences=setup.config.max_sequences,
            max_tokens=setup.max_tokens,
            deterministic=setup.config.deterministic,
        )
        engine.given = setup
        return engine

    async def generate(self, prompt, sampling, *, session, images=()):
        text = self.given.tokenizer.decode(prompt)
        reply = f"<answer> {ANSWERS[sampling.seed % 4]}</answer>"
        if "BEGIN DATA" in text:
            example = json.loads(text.splitlines()[-2])
            word = ("first", "second", "tie")[sampling.seed % 3]
            malformed = sampling.temperature and sampling.seed % 5 == 0
            reply = "no" if malformed else json.dumps(example | {"reason": "", "better": word})
        tokens = self.given.tokenizer.encode(reply)
        if "BEGIN DATA" in text:
            tokens.append(self.given.tokenizer.eos_token_id)
        with torch.no_grad():
            logits = self.given.model(torch.tensor([[*prompt, *tokens]])).logits[0]
        known = logits[len(prompt) - 1 : -1].float().log_softmax(-1)
        logprobs, kept = known[range(len(tokens)), tokens].tolist(), None
        if sampling.returns_kept:
            sets = [sorted({token, 3, 7, 11}) for token in tokens]
            totals = [row[own].logsumexp(0).item() for row, own in zip(known, sets, strict=True)]
            logprobs = [one - total for one, total in zip(logprobs, totals, strict=True)]
            kept = KeptTokens.of(sets)
        reason = StopReason.END_OF_TEXT if "BEGIN DATA" in text else StopReason.STOP_STRING
        return Completion(tokens, logprobs, reason, self.version, kept=kept)
