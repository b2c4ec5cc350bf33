"""Training-inference mismatch alone, at four strengths, and what each correction saves.

    .venv/bin/python benchmarks/mismatch.py          # some minutes on one core

A policy of 2,000 weights answers 8 prompts with 2 tokens of 8; the reward is the share of right
ones. Tokens are sampled from the same weights, rounded to few bits a row, as a quantised engine has
them; nothing else differs, and every step makes one update on what was just sampled. Loss and
corrections are those of turnwise; success, that both tokens are right, is computed and not
sampled, for the policy that learned and for the rounded one that would be deployed. Runs are paired
by seed. Writes mismatch.json, .md and .png.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.rounded_engine import rounded
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.algorithms.losses import TrainedTokens, policy_loss
from turnwise.algorithms.outcome_advantages import grpo
from turnwise.algorithms.parts import BYPASS
from turnwise.evaluation.intervals import student_t
from turnwise_algorithms.score_centering import expected

PROMPTS, LENGTH, TOKENS, GROUP, WIDTH = 8, 2, 8, 32, 32
STEPS, LEARNING_RATE, LAST, SEEDS = 300, 4e-3, 20, 3
BITS = (5, 4, 3, 2)
CORRECTIONS: Mapping[str, Mapping[str, Any]] = {
    "none": {"correction": "none"},
    "clip to the sampler (bypass)": {},
    "truncated": {"correction": "truncated"},
    "sequence_truncated": {"correction": "sequence_truncated"},
    "masked 0.5 to 2": {"correction": "masked"},
    "ipo": {"objective": "ipo"},
    "kpop": {"objective": "kpop"},
    "centred": {"objective": "centred"},
}


Row = dict[str, Any]


def main() -> None:
    """Train all, print, and write; runs that are in the file already are kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/mismatch"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines = arguments.out / "mismatch.jsonl"
    rows = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    done = {(row["bits"], row["correction"], row["seed"]) for row in rows}
    asked = [(0, "none"), *((bits, name) for bits in BITS for name in CORRECTIONS)]
    for seed in range(arguments.seeds):
        for bits, name in asked:
            if (bits, name, seed) in done:
                continue
            found = run(CORRECTIONS[name], bits, seed, arguments.steps)
            rows.append({"bits": bits, "correction": name, "seed": seed, **found})
            with lines.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    table = markdown(rows)
    (arguments.out / "mismatch.md").write_text(table)
    draw(rows, arguments.out / "mismatch.png")
    print(table)


def of(rows: Sequence[Row], bits: int, correction: str, number: str) -> list[float]:
    """A number of each seed."""
    own = [row for row in rows if (row["bits"], row["correction"]) == (bits, correction)]
    return [row[number] for row in sorted(own, key=lambda row: row["seed"])]


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95% interval over seeds."""
    if len(numbers) < 2:
        return fmean(numbers), float("nan")
    width = student_t(0.975, len(numbers) - 1) * stdev(numbers) / len(numbers) ** 0.5
    return fmean(numbers), width


def markdown(rows: Sequence[Row]) -> str:
    """What uncorrected runs come to, and what each correction adds, in points of success."""
    head = ["", "exact", *(f"{bits} bits" for bits in BITS)]
    every = (0, *BITS)
    lines = [head, ["---"] * len(head)]
    for number in ("gap", "learned", "deployed"):
        cells = [of(rows, bits, "none", number) for bits in every]
        scale = 1 if number == "gap" else 100
        shown = [f"{scale * fmean(cell):.{3 if number == 'gap' else 1}f}" for cell in cells]
        lines.append([f"none: {number}", *shown])
    for number in ("deployed", "learned"):
        for name in list(CORRECTIONS)[1:]:
            cells = []
            for bits in BITS:
                pairs = zip(
                    of(rows, bits, name, number), of(rows, bits, "none", number), strict=True
                )
                mean, width = interval([100 * (own - none) for own, none in pairs])
                cells.append(f"{mean:+.1f} ± {width:.1f}")
            lines.append([f"{name}: {number}", "", *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def draw(rows: Sequence[Row], file: Path) -> None:
    figure = Figure(figsize=(11, 5), layout="constrained")
    for axes, number in zip(
        figure.subplots(1, 2, sharey=True), ("deployed", "learned"), strict=True
    ):
        for place, name in enumerate(CORRECTIONS):
            means, widths = zip(
                *(interval(of(rows, bits, name, number)) for bits in BITS), strict=True
            )
            where = np.arange(len(BITS)) + (place - len(CORRECTIONS) / 2) * 0.04
            style = "k--" if name == "none" else "o-"
            axes.errorbar(where, means, widths, fmt=style, ms=3, lw=1, label=name)
        exact = fmean(of(rows, 0, "none", number))
        axes.axhline(exact, color="grey", lw=1, label="sampled exactly")
        axes.set_xticks(range(len(BITS)), [f"{bits} bits" for bits in BITS])
        axes.set_title(f"success of the policy that is {number}")
    axes.legend(fontsize=7)
    figure.savefig(file, dpi=110)


class Policy(nn.Module):
    """Logits of the next token from prompt, place and the token before."""

    def __init__(self) -> None:
        super().__init__()
        sizes = PROMPTS, LENGTH, TOKENS + 1
        self.read = nn.ModuleList(nn.Embedding(size, WIDTH) for size in sizes)
        self.said = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, TOKENS))

    def forward(self, *places: Tensor) -> Tensor:
        read = sum(layer(place) for layer, place in zip(self.read, places, strict=True))
        return torch.log_softmax(self.said(read), dim=-1)


Sampler = Mapping[str, Tensor]


def sampler_of(policy: Policy, bits: int) -> Sampler:
    """The weights that sample; with 0 bits those of the policy."""
    own = {name: weight.detach() for name, weight in policy.named_parameters()}
    return {name: rounded(weight, bits) for name, weight in own.items()} if bits else own


def places(prompt: Tensor, answers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Prompt, place and the token before of every token, [n, LENGTH] each; TOKENS is no token."""
    before = torch.cat([torch.full_like(answers[:, :1], TOKENS), answers[:, :-1]], 1)
    return prompt[:, None].expand_as(answers), torch.arange(LENGTH).expand_as(answers), before


def sampled(policy: Policy, weights: Sampler, prompt: Tensor, random: torch.Generator) -> Tensor:
    answers = torch.zeros(len(prompt), LENGTH, dtype=torch.long)
    for place in range(LENGTH):
        logprobs = functional_call(policy, dict(weights), places(prompt, answers))[:, place]
        answers[:, place] = torch.multinomial(logprobs.exp(), 1, generator=random)[:, 0]
    return answers


def success(policy: Policy, weights: Sampler, right: Tensor) -> float:
    """The probability that all tokens of an answer are right, in the mean over prompts."""
    with torch.no_grad():
        logprobs = functional_call(policy, dict(weights), places(torch.arange(PROMPTS), right))
    return float(logprobs.gather(2, right[:, :, None]).sum((1, 2)).exp().mean())


def loss_of(
    algorithm: Algorithm, policy: Tensor, sampler: Tensor, answers: Tensor, advantage: Tensor
) -> Tensor:
    """One update's loss, from log-probabilities [n, LENGTH, TOKENS] and advantages [n]."""
    spread = advantage[:, None].expand_as(answers).reshape(-1)
    here, there = (one.gather(2, answers[:, :, None]).reshape(-1) for one in (policy, sampler))
    weight = torch.full_like(spread, 1 / len(spread))
    tokens = TrainedTokens(
        logprob=here,
        behaviour_logprob=there,
        old_logprob=there if algorithm.correction == BYPASS else here.detach(),
        advantage=spread,
        weight=weight,
        sequence=torch.arange(len(answers)).repeat_interleave(LENGTH),
        entropy=torch.zeros_like(here),
    )
    loss = policy_loss(tokens, algorithm).losses.sum()
    if algorithm.objective != "centred":
        return loss
    bounds = algorithm.numbers_of("objective")
    flat = (one.reshape(-1, TOKENS) for one in (policy, sampler))
    term = expected(*flat, bounds["clip_low"], bounds["clip_high"])
    return loss + (weight * spread * term).sum()


def run(correction: Mapping[str, Any], bits: int, seed: int, steps: int) -> dict[str, float]:
    """Train once; means of the last steps."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    policy, right = Policy(), torch.randint(TOKENS, (PROMPTS, LENGTH), generator=random)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    algorithm = make_algorithm("grpo", {"aggregation": "token_mean", **correction})
    prompt = torch.arange(PROMPTS).repeat_interleave(GROUP)
    curve: list[tuple[float, float, float]] = []
    for step in range(steps):
        weights = sampler_of(policy, bits)
        with torch.no_grad():
            answers = sampled(policy, weights, prompt, random)
            there = functional_call(policy, dict(weights), places(prompt, answers))
        here = policy(*places(prompt, answers))
        rewards = (answers == right[prompt]).double().mean(1).numpy()
        advantage = np.concatenate([grpo(group) for group in np.split(rewards, PROMPTS)])
        loss = loss_of(algorithm, here, there, answers, torch.from_numpy(advantage).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= steps - LAST:
            learned, deployed = (
                success(policy, sampler_of(policy, own), right) for own in (0, bits)
            )
            gap = (there.exp() * (there - here.detach())).sum(-1).mean()
            curve.append((learned, deployed, float(gap)))
    names = "learned", "deployed", "gap"
    return {name: fmean(one) for name, one in zip(names, zip(*curve, strict=True), strict=True)}


if __name__ == "__main__":
    main()
