"""The vectors and the reference that computes what is expected of them, in float64.

    python -m conformance.make    # writes vectors.json anew

The reference is plain loops over the formulas that each vector names. `planted` is the name of a
choice or of a mistake that is built in: it gives the known other answers, by which `run.py` says
how a framework differs, and shows that each vector can fail.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from conformance.run import (
    FILE,
    Inputs,
    Outputs,
    expected_gradient,
    on_tokens,
    rounded,
    width_of,
    written,
)

OPERATIONS = {
    "episode": "A policy's turns, as token ids: sampled, forced by the engine, observed. Gives "
    "`trained`: the ids in the loss, in order, each as often as it is trained. `vocabulary` has "
    "the text of each id; a turn with `context` begins anew with these ids before it.",
    "loss": "Log-probabilities, advantages and masks of rows, in micro-batches (lists of rows) of "
    "one optimizer step. Gives `loss` and `gradient`, by the log-probabilities; with an entropy "
    "term, `entropy_gradient`.",
    "divergence": "Log-probabilities of sampled tokens under two policies. Gives `value` of each "
    "token and the `gradient` of their sum, by the first.",
    "advantage": "A reward for each row (null: ungraded), and the group and trajectory it is of. "
    "Gives `advantage` of each token, 0 where none was sampled or graded.",
    "returns": "A reward for each token, where it arrived. Gives `returns` of sampled tokens.",
    "gae": "Rewards and a critic's values for each token; `after`: the value after a row that a "
    "limit cut off, or null. Gives `advantage` of sampled tokens, not whitened.",
    "policy_gradient": "All groups that a small policy can sample, with probabilities; rewards and "
    "scores (gradients of the log-probability) of each turn. Gives the expected `gradient`: see "
    "`expected_gradient`.",
    "logprobs": "Logits: row t is what the model says after token t. Gives `logprob` of sampled "
    "tokens under the policy that sampled them; `kept` are the ids it drew from, null: all.",
    "grade": "What the policy wrote and what it was shown, in order. Gives `reward`: 1 if the "
    "policy's own answer is right.",
    "dialogue": "The calls of each turn, with arguments as the text of JSON, or of what was meant "
    "for it, which an adapter writes in the framework's own form; a call gives its place, after so "
    "many seconds; `look` is asynchronous, `read` is not. Gives `turns` that are played before the "
    "episode ends by an answer, and what is `shown` after each: places, -1 for an error.",
    "together": "One call of each of some episodes, as in `dialogue`, that are played together; "
    "their grader's reply is 1. No tool may take longer than `limit` seconds. Gives `graded` (0 or "
    "1) of each and what is `shown` in it.",
    "verdict": "The grader's replies to some episodes: a number, null, another text, or that it "
    "raises. Gives `graded` (0 or 1) and `reward` (0 without a grade) of each.",
    "resume": "Rows as in `loss`, with advantages for each of some `steps` of AdamW, which moves "
    "the log-probabilities as weights. After `stop_after` steps all is written to files, and what "
    "is read from them goes on. Gives `logprob` after the last step.",
    "order": "Tasks, and how many a step takes, in a run that stops after `stop_after` steps and "
    "goes on. Gives how often each task came: `times`, in ascending order.",
    "reload": "An engine has a model of tied embeddings, the first of two, and answers; then it is "
    "given the second. The model is its embeddings, normalised by their root mean square (1e-6), "
    "and their product with themselves. Gives the likeliest `token` after `prompt`, and its "
    "`logprob`.",
}

DEFECTS = {
    1: "Tool output is graded as if the policy had written it",
    2: "A reward on a token that was not sampled counts in one estimator and not in another; a "
    "group of one is trained with its raw reward",
    3: "A turn whose reward is 0 vanishes from turn-level advantage estimation",
    4: "A mask by offsets or by counting markers: wrong after the first tool call",
    5: "Text is decoded, edited and encoded again: what is trained was never sampled",
    6: "A failure of the environment or the grader is trained on as reward 0",
    7: "No deadline for tools; one bad episode ends the step",
    8: "Tools of different episodes wait for each other; results come back in another order",
    9: "A malformed tool call is dropped in silence",
    10: "A token that the engine forced is trained",
    11: "A resumed run is another run",
    12: "The gradient depends on micro-batches; a trajectory counts as often as it has rows",
    13: "What contexts share is trained once in each of them",
    14: "What a grader does not know counts as right",
    15: "New weights reach the engine in part",
    16: "Turns are compared with those that had such a turn, and the policy decides which have",
    17: "Micro-batches are dropped: only the last one's gradient is applied",
    18: "A mean over micro-batches of means",
}


def reference_episode(inputs: Inputs, planted: str = "") -> Outputs:
    if planted == "encoded again":
        return {"trained": encode(inputs, [i for turn in inputs["turns"] for i in turn["sampled"]])}
    trained: list[int] = []
    for turn in inputs["turns"]:
        if planted == "copies trained":
            trained += [i for i in turn.get("context", []) if i in inputs["own"]]
        trained += turn["sampled"]
        if planted == "forced trained":
            trained += turn.get("forced", [])
        if planted == "observations trained":
            trained += turn.get("observed", [])
        if planted == "by markers":
            trained += after_marker(turn.get("observed", []), inputs["marker"])
    if planted == "end not trained":
        trained = [i for i in trained if i != inputs["end"]]
    if planted == "last turn alone":
        trained = list(inputs["turns"][-1]["sampled"])
    return {"trained": trained}


def after_marker(ids: list[int], marker: int) -> list[int]:
    """What a mask by markers takes for the policy's: all that follows one."""
    return ids[ids.index(marker) + 1 :] if marker in ids else []


def encode(inputs: Inputs, ids: list[int]) -> list[int]:
    """The longest pieces of the vocabulary first, as a tokenizer of merges does it."""
    text, pieces = "".join(inputs["vocabulary"][i] for i in ids), []
    ordered = sorted(enumerate(inputs["vocabulary"]), key=lambda pair: -len(pair[1]))
    while text:
        number, piece = next(pair for pair in ordered if text.startswith(pair[1]))
        pieces.append(number)
        text = text[len(piece) :]
    return pieces


def reference_loss(inputs: Inputs, planted: str = "") -> Outputs:
    mask = [np.array(row, float) for row in inputs["mask"]]
    if planted == "observations trained":
        mask = [np.ones_like(row) for row in mask]
    weights = loss_weights(inputs, mask, planted)
    loss, gradient = 0.0, []
    for number, (row, weight) in enumerate(zip(mask, weights, strict=True)):
        value, slope = objective(inputs, number, row, planted)
        if inputs.get("kl_coefficient"):
            x = np.array(inputs["logprob"][number]) - np.array(inputs["reference"][number])
            value = value + inputs["kl_coefficient"] * k3(x)[0]
            slope = slope + inputs["kl_coefficient"] * k3(x)[1]
        loss += float((weight * row * value).sum())
        gradient.append((weight * row * slope).tolist())
    outputs: Outputs = {"loss": loss, "gradient": gradient}
    if inputs.get("entropy_coefficient"):
        terms = entropy_terms(inputs, mask, planted)
        pairs = zip(terms, inputs["entropy"], strict=True)
        outputs["loss"] += sum(float((term * np.array(row)).sum()) for term, row in pairs)
        outputs["entropy_gradient"] = [term.tolist() for term in terms]
    return outputs


def objective(inputs: Inputs, number: int, mask: Any, planted: str) -> tuple[Any, Any]:
    """Loss of each token, and its slope by the token's own log-probability."""
    logprob, old, advantage = (
        np.array(inputs[key][number]) for key in ("logprob", "old_logprob", "advantage")
    )
    log_ratio = logprob - old
    if inputs["ratio"] == "sequence":
        over = np.ones_like(mask) if planted == "length with observations" else mask
        log_ratio = np.full_like(logprob, (log_ratio * mask).sum() / max(over.sum(), 1))
    if planted == "sum of log-ratios":
        log_ratio = np.full_like(logprob, ((logprob - old) * mask).sum())
    ratio = np.exp(log_ratio)
    low, high = 1 - inputs["clip_low"], 1 + inputs["clip_high"]
    if planted == "one clip":
        high = 1 + inputs["clip_low"]
    bounded = np.clip(ratio, low, high)
    if inputs["objective"] == "cispo":
        gone = (bounded != ratio) if planted == "clipped tokens dropped" else np.zeros(len(ratio))
        weight = np.where(gone, 0.0, bounded)
        return -weight * advantage * logprob, -weight * advantage
    plain, clipped = -ratio * advantage, -bounded * advantage
    # The gradient is there while the plain term is the larger, or nothing was clipped.
    free = (plain >= clipped) | (bounded == ratio)
    if planted == "clipped on both sides":
        free, plain = bounded == ratio, clipped
    value, slope = np.maximum(plain, clipped), np.where(free, plain, 0.0)
    if inputs["dual_clip"] and planted != "no second bound":
        bound = -inputs["dual_clip"] * advantage
        beyond = (advantage < 0) & (value > bound)
        value, slope = np.where(beyond, bound, value), np.where(beyond, 0.0, slope)
    if planted == "gradient of the sequence's ratio":
        # Each token's log-probability moves the ratio of all: the slopes are shared.
        slope = np.full_like(slope, (slope * mask).sum() / max(mask.sum(), 1))
    return value, slope


def loss_weights(inputs: Inputs, mask: list[Any], planted: str) -> list[float]:
    """The weight of each row's tokens."""
    batches = inputs["micro_batches"]
    weights = [0.0] * len(mask)
    parts = batches if planted == "mean of means" else [list(chain(*batches))]
    for rows in parts:
        for row, weight in zip(
            rows, part_weights(inputs, [mask[r] for r in rows], planted), strict=True
        ):
            weights[row] = weight / len(parts)
    if planted == "all but the last dropped":
        kept = batches[-1]
        weights = [weight if row in kept else 0.0 for row, weight in enumerate(weights)]
    return weights


def part_weights(inputs: Inputs, mask: list[Any], planted: str) -> list[float]:
    counts = [float(row.sum()) for row in mask]
    rows = sum(count > 0 for count in counts)
    if planted == "empty rows counted":
        rows = len(mask)
    if planted == "zero advantages left out":
        used = [any(row) for row in inputs["advantage"]]
        counts = [count if one else 0.0 for count, one in zip(counts, used, strict=True)]
        rows = sum(used)
    if planted == "padding counted":
        counts = [float(width_of(inputs))] * len(mask)
    per_row = {
        "token_mean": [1 / max(sum(counts), 1)] * len(mask),
        "sequence_mean_token_mean": [1 / (max(rows, 1) * max(count, 1)) for count in counts],
        "constant": [1 / (max(rows, 1) * inputs.get("length", 1))] * len(mask),
    }
    name = inputs["aggregation"]
    if planted == "every token the same":
        name = "token_mean"
    if planted == "every row the same":
        name = "sequence_mean_token_mean"
    return per_row[name]


def entropy_terms(inputs: Inputs, mask: list[Any], planted: str) -> list[Any]:
    """What each token's entropy is multiplied by: the mean over the step's sampled tokens."""
    planted = planted.removesuffix(" of the entropy")
    weights = loss_weights(inputs | {"aggregation": "token_mean"}, mask, planted)
    return [-inputs["entropy_coefficient"] * w * row for w, row in zip(weights, mask, strict=True)]


def k3(x: Any) -> tuple[Any, Any]:
    return np.exp(-x) + x - 1, 1 - np.exp(-x)


def reference_divergence(inputs: Inputs, planted: str = "") -> Outputs:
    x = np.array(inputs["logprob"]) - np.array(inputs["reference"])
    if planted == "the other way round":
        x = -x
    estimators = {"k1": (x, np.ones_like(x)), "k2": (x**2 / 2, x), "k3": k3(x)}
    estimators["k3 with the gradient of k2"] = (k3(x)[0], x)
    value, gradient = estimators[planted if planted in estimators else inputs["estimator"]]
    if planted == "the other way round":
        gradient = -gradient
    return {"value": value.tolist(), "gradient": gradient.tolist()}


def reference_advantage(inputs: Inputs, planted: str = "") -> Outputs:
    rewards = [0.0 if r is None and planted == "ungraded as 0" else r for r in inputs["reward"]]
    numbers = np.zeros(len(rewards))
    for group in dict.fromkeys(inputs["group"]):
        rows = [i for i, own in enumerate(inputs["group"]) if own == group]
        rows = [i for i in rows if rewards[i] is not None]
        once = {inputs["trajectory"][i]: rewards[i] for i in rows}
        if planted == "rows counted":
            once = {i: rewards[i] for i in rows}
        values = np.array(list(once.values()), float)
        for row in rows:
            numbers[row] = compared(inputs["estimator"], rewards[row], values, planted)
    table = on_tokens(numbers, inputs["mask"])
    if inputs["estimator"] == "reinforce_pp":
        returns = on_tokens(rewards, inputs["mask"])
        if planted == "returns end at observations":
            returns = [
                behind_last_observation(row, m)
                for row, m in zip(returns, inputs["mask"], strict=True)
            ]
        table = whitened(returns, inputs["mask"], planted)
    return {"advantage": table}


def behind_last_observation(row: list[float], mask: list[int]) -> list[float]:
    """The row with 0 before its last token that was not sampled."""
    last = max((t for t, m in enumerate(mask) if not m), default=0)
    return [0.0] * last + row[last:]


def compared(estimator: str, reward: float, values: Any, planted: str) -> float:
    """A reward beside those of its group, of which it is one."""
    if len(values) == 1 and planted == "raw reward":
        return reward
    if len(values) < 2:
        return 0.0
    deviation = reward - values.mean()
    if estimator == "rloo" and planted != "own reward in the baseline":
        return float(deviation * len(values) / (len(values) - 1))
    divided = estimator == "grpo" or planted == "divided by the deviation"
    if not divided or planted == "not divided":
        return float(deviation)
    ddof = 0 if planted == "population deviation" else 1
    scale = values.std(ddof=ddof)
    if planted == "no floor":
        return float(deviation / max(scale, 1e-9)) if scale else float(deviation)
    return float(deviation / (scale + 1e-6))


def whitened(table: Any, mask: list[list[int]], planted: str) -> list[list[float]]:
    """Over all sampled tokens of the batch."""
    pairs = [
        (n, m) for row, own in zip(table, mask, strict=True) for n, m in zip(row, own, strict=True)
    ]
    all_tokens = planted == "observations counted"
    numbers = np.array([n for n, m in pairs if m or all_tokens])
    scale = numbers.std(ddof=1 if planted == "sample deviation" else 0)
    return [
        [(n - numbers.mean()) / scale * m for n, m in zip(r, o, strict=True)]
        for r, o in zip(table, mask, strict=True)
    ]


def reference_returns(inputs: Inputs, planted: str = "") -> Outputs:
    found = []
    for rewards, mask in zip(inputs["reward"], inputs["mask"], strict=True):
        running, row = 0.0, [0.0] * len(mask)
        for t in reversed(range(len(mask))):
            if planted == "observations discount" or mask[t]:
                running = arrived(rewards, mask, t, planted) + inputs["discount"] * running
            if planted == "ends at observations" and not mask[t]:
                running = 0.0
            row[t] = running * mask[t]
        found.append(row)
    return {"returns": found}


def arrived(rewards: list[float], mask: list[int], t: int, planted: str) -> float:
    """A sampled token's reward, and what arrived on the observation behind it."""
    own = "rewards of observations dropped", "observations discount", "ends at observations"
    if planted in own:
        return rewards[t] if mask[t] else 0.0
    total, place = rewards[t], t + 1
    while place < len(mask) and not mask[place]:
        total, place = total + rewards[place], place + 1
    return total


def reference_gae(inputs: Inputs, planted: str = "") -> Outputs:
    rows = zip(
        inputs["reward"],
        inputs["value"],
        inputs["mask"],
        inputs["turn"],
        inputs["after"],
        strict=True,
    )
    one = bilevel_row if inputs["estimator"] == "bilevel" else gae_row
    return {"advantage": [one(inputs, planted, *map(list_or_number, row)) for row in rows]}


def list_or_number(value: Any) -> Any:
    return np.array(value, float) if isinstance(value, list) else value


def gae_row(
    inputs: Inputs, planted: str, reward: Any, value: Any, mask: Any, turn: Any, after: Any
) -> list[float]:
    steps = np.flatnonzero(mask)
    if planted in ("observations are steps", "observations have value 0"):
        steps = np.arange(len(mask))
    if planted == "observations have value 0":
        value, reward = value * mask, reward * mask
    rewards = [
        reward[t] if len(steps) == len(mask) else arrived(reward, mask, t, planted) for t in steps
    ]
    last = after if after is not None and planted != "the end has value 0" else 0.0
    found = np.zeros(len(mask))
    found[steps] = gae(rewards, value[steps], inputs["discount"], inputs["decay"], last)
    return (found * mask).tolist()


def gae(rewards: Any, values: Any, discount: float, decay: float, after: float = 0.0) -> Any:
    found, running = np.zeros(len(values)), 0.0
    for t in reversed(range(len(values))):
        following = values[t + 1] if t + 1 < len(values) else after
        running = rewards[t] + discount * following - values[t] + discount * decay * running
        found[t] = running
    return found


def bilevel_row(
    inputs: Inputs, planted: str, reward: Any, value: Any, mask: Any, turn: Any, after: Any
) -> list[float]:
    """Over turns first, at their last sampled tokens; then over each turn's own tokens."""
    ends = [int(np.flatnonzero((turn == k) & (mask > 0))[-1]) for k in np.unique(turn[mask > 0])]
    if planted == "ends where rewards are not 0":
        ends = [end for end in ends if reward[end]]
    high = gae(reward[ends], value[ends], inputs["turn_discount"], inputs["decay"])
    found, start = np.zeros(len(mask)), 0
    for end, advantage in zip(ends, high, strict=True):
        own = np.arange(start, end + 1)[mask[start : end + 1] > 0]
        rewards = np.zeros(len(own))
        rewards[-1] = advantage + value[end]
        found[own] = gae(rewards, value[own], inputs["discount"], inputs["decay"])
        start = end + 1
    return found.tolist()


def reference_policy_gradient(inputs: Inputs, planted: str = "") -> Outputs:
    """Returns from each turn on, less those of the others; who has no such turn stands with its
    last one."""

    def advantage(rewards: list[list[float]]) -> list[list[float]]:
        returns = [np.cumsum(row[::-1])[::-1] for row in rewards]
        return [
            [own - baseline(returns, i, k, own) for k, own in enumerate(row)]
            for i, row in enumerate(returns)
        ]

    def baseline(returns: list[Any], i: int, k: int, own: float) -> float:
        others = [row for j, row in enumerate(returns) if j != i]
        if planted == "compared with those that had the turn":
            others = [row for row in others if k < len(row)]
        return float(np.mean([row[min(k, len(row) - 1)] for row in others])) if others else own

    return expected_gradient(inputs, advantage)


def reference_logprobs(inputs: Inputs, planted: str = "") -> Outputs:
    temperature = 1.0 if planted == "temperature left out" else inputs["temperature"]
    found = []
    for place, (token, sampled) in enumerate(zip(inputs["ids"], inputs["mask"], strict=True)):
        row = np.array(inputs["logits"][place if planted == "not shifted" else place - 1])
        kept = inputs["kept"][place]
        if kept is not None and planted != "over the whole vocabulary":
            row = np.where(np.isin(np.arange(len(row)), kept), row, -np.inf)
        row = row / temperature
        found.append(float(row[token] - np.logaddexp.reduce(row)) if sampled else 0.0)
    return {"logprob": found}


def reference_grade(inputs: Inputs, planted: str = "") -> Outputs:
    who = ("policy", "tool") if planted == "tool output graded" else ("policy",)
    text = "".join(part["text"] for part in inputs["parts"] if part["source"] in who)
    answers = re.findall(r"<answer>(.*?)</answer>", text)
    return {"reward": float(bool(answers) and answers[-1].strip() == inputs["answer"])}


def reference_dialogue(inputs: Inputs, planted: str = "") -> Outputs:
    shown: list[list[int]] = []
    for turn in inputs["turns"]:
        calls = [call for call in turn if call["arguments"].endswith("}")]
        if planted == "in order of arrival":
            calls.sort(key=lambda call: json.loads(call["arguments"])["seconds"])
        if planted == "asynchronous tools last":
            calls.sort(key=lambda call: call["tool"] == "look")
        places = [json.loads(call["arguments"])["place"] for call in calls]
        if planted == "the episode ends" and not calls:
            shown.append([])
            break
        shown.append(places if planted == "dropped" else places or [-1])
    return {"turns": len(shown), "shown": shown}


def reference_verdict(inputs: Inputs, planted: str = "") -> Outputs:
    known = [isinstance(reply, float) for reply in inputs["replies"]]
    unknown = float(planted == "counts as right")
    rewards = [reply if isinstance(reply, float) else unknown for reply in inputs["replies"]]
    return {"graded": [int(one or bool(planted)) for one in known], "reward": rewards}


def reference_together(inputs: Inputs, planted: str = "") -> Outputs:
    arguments = [json.loads(call["arguments"]) for call in inputs["calls"]]
    late = [one["seconds"] > inputs["limit"] for one in arguments]
    if planted == "one ends all":
        return {"graded": [0 for _ in late], "shown": [[] for _ in late]}
    places = [[one["place"]] for one in arguments]
    instead = [-1] if planted == "shown as an error" else []
    if planted != "waited for":
        places = [instead if over else own for own, over in zip(places, late, strict=True)]
    graded = [int(not over or planted != "not graded") for over in late]
    return {"graded": graded, "shown": places}


def reference_resume(inputs: Inputs, planted: str = "") -> Outputs:
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), with a clipped gradient."""
    steps, stop, (a, b) = list(inputs["steps"]), inputs["stop_after"], inputs["betas"]
    if planted == "a step skipped":
        del steps[stop]
    if planted == "a step repeated":
        steps.insert(stop, steps[stop - 1])
    table = np.concatenate(inputs["logprob"])
    ends = np.cumsum([len(row) for row in inputs["mask"]])[:-1]
    first, second, moved, begun = np.zeros_like(table), np.zeros_like(table), 0, 0
    for number, advantage in enumerate(steps):
        if number == stop and planted == "moments forgotten":
            first, second, moved = np.zeros_like(table), np.zeros_like(table), 0
        if number == stop and planted == "warmed up again":
            begun = 0
        logprob = [row.tolist() for row in np.split(table, ends)]
        found = reference_loss(inputs | {"logprob": logprob, "advantage": advantage})
        gradient = np.concatenate(found["gradient"])
        norm = float(np.sqrt((gradient**2).sum()))
        gradient *= min(1.0, inputs["max_gradient_norm"] / (norm + 1e-6))
        moved, begun = moved + 1, begun + 1
        rate = inputs["learning_rate"] * min(1.0, begun / inputs["warmup_steps"])
        first = a * first + (1 - a) * gradient
        second = b * second + (1 - b) * gradient**2
        step = (first / (1 - a**moved)) / (np.sqrt(second / (1 - b**moved)) + 1e-8)
        table = table * (1 - rate * inputs["weight_decay"]) - rate * step
    return {"logprob": [row.tolist() for row in np.split(table, ends)]}


def reference_order(inputs: Inputs, planted: str = "") -> Outputs:
    count, stop = inputs["tasks_per_step"], inputs["stop_after"] * inputs["tasks_per_step"]
    places = list(range(inputs["steps"] * count))
    if planted == "begun anew":
        places[stop:] = range(len(places) - stop)
    if planted == "a step skipped":
        places[stop:] = range(stop + count, len(places) + count)
    drawn = [place % inputs["tasks"] for place in places]
    return {"times": sorted(drawn.count(task) for task in range(inputs["tasks"]))}


def reference_reload(inputs: Inputs, planted: str = "") -> Outputs:
    before, after = (np.array(table) for table in inputs["embeddings"])
    inner = before if planted in ("nothing reaches it", "the input's stale") else after
    outer = before if planted in ("nothing reaches it", "the output's stale") else after
    hidden = inner[inputs["prompt"][-1]]
    logits = outer @ (hidden / np.sqrt((hidden**2).mean() + 1e-6))
    token = int(logits.argmax())
    return {"token": token, "logprob": float(logits[token] - np.logaddexp.reduce(logits))}


REFERENCE: dict[str, Callable[..., Outputs]] = {
    name: globals()[f"reference_{name}"] for name in OPERATIONS
}


# The vectors


@dataclass(frozen=True)
class Case:
    """A vector before its numbers: what it is there for, its inputs, and known other answers."""

    id: str
    operation: str
    inputs: Inputs
    must: str
    source: str
    defects: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    """Other conventions: the names of what is planted in the reference."""
    mistakes: tuple[str, ...] = ()
    tolerance: float = 1e-4
    """Largest difference, of 1 and the size of what is expected."""


MASKS = [[1, 1, 1], [1, 1, 0, 0, 1, 1, 1], [1, 1, 0, 1], [1, 0, 0, 0, 1, 1]]
"""Rows with tool output (0) between what the policy sampled."""


def batch(seed: int, **changes: Any) -> Inputs:
    """Four rows in two micro-batches, ratios around 1, advantages of both signs."""
    mask = changes.get("mask", MASKS)
    draw = np.random.default_rng(seed)

    def rows(low: float, high: float) -> list[list[float]]:
        return [[round(float(n), 3) for n in draw.uniform(low, high, len(row))] for row in mask]

    old, moved = rows(-3, -0.5), rows(-0.35, 0.35)
    logprob = [
        [round(a + b, 3) for a, b in zip(*pair, strict=True)]
        for pair in zip(old, moved, strict=True)
    ]
    advantage = [[a] * len(row) for a, row in zip([1.0, -0.5, 0.75, -1.25] * 2, mask, strict=False)]
    inputs = {
        "logprob": logprob,
        "old_logprob": old,
        "advantage": advantage,
        "mask": mask,
        "micro_batches": [list(range(len(mask)))],
        "objective": "clip",
        "ratio": "token",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": None,
        "aggregation": "token_mean",
    }
    return inputs | changes


HALVES = [[0, 1], [2, 3]]
EACH = [[0], [1], [2], [3]]


def losses() -> list[Case]:
    dapo, grpo = "DAPO, arXiv 2503.14476", "GRPO, arXiv 2402.03300"
    dr_grpo, ppo = "Dr.GRPO, arXiv 2503.20783", "PPO, arXiv 1707.06347, equation 7"
    gspo, cispo = "GSPO, arXiv 2507.18071", "CISPO, arXiv 2506.13585"
    found, mean = "arXiv 2604.23747", "sequence_mean_token_mean"
    far = [[-0.9, -1.6, -1.4], [-1.0, -2.0, -1.0, -1.0, -0.2, -1.0, -1.7], [-1.0] * 4, [-0.3] * 6]
    near = {"old_logprob": [[-1.2] * 3, [-1.2] * 7, [-1.6, -0.8, -1, -1.1], [-2.3] + [-0.6] * 5]}
    wide = {"logprob": far, **near}
    by_turn = [[1.0] * 3, [0.5] * 4 + [-1.0] * 3, [-0.5] * 3 + [0.25], [2.0] + [-0.5] * 5]
    empty = [*MASKS[:3], [0] * 6]
    zero = [[1.0] * 3, [0.0] * 7, [0.0] * 4, [-1.0] * 6]
    entropy = [[round(0.3 + 0.1 * n, 2) for n in range(len(row))] for row in MASKS]
    reference = [[round(-1.5 + 0.1 * n, 2) for n in range(len(row))] for row in MASKS]
    return [
        Case(
            "loss-tool-output",
            "loss",
            batch(1),
            "Tool output is in no term of the loss and in no denominator.",
            "Search-R1, arXiv 2503.09516",
            (4,),
            mistakes=("observations trained", "padding counted"),
        ),
        Case(
            "loss-padding",
            "loss",
            batch(1, width=16),
            "Padding changes nothing: the loss is that of loss-tool-output.",
            dapo,
            mistakes=("padding counted",),
        ),
        Case(
            "loss-sequence-mean",
            "loss",
            batch(2, aggregation=mean),
            "Each sequence counts the same, its tokens by its own sampled length.",
            grpo,
            mistakes=("every token the same", "padding counted", "observations trained"),
        ),
        Case(
            "loss-constant",
            "loss",
            batch(3, aggregation="constant", length=8),
            "Each token counts the same, on a scale that no length changes.",
            dr_grpo,
            mistakes=("every token the same", "every row the same"),
        ),
        Case(
            "loss-clip-sides",
            "loss",
            batch(4, **wide),
            "The ratio is clipped above for a positive advantage, below for a negative one, and "
            "on the other side the gradient stays.",
            ppo,
            mistakes=("clipped on both sides",),
        ),
        Case(
            "loss-clip-higher",
            "loss",
            batch(5, logprob=[[-1.0] * len(row) for row in MASKS], clip_high=0.28)
            | {"old_logprob": [[-1.23] * len(row) for row in MASKS]},
            "The two bounds are two numbers: a ratio of 1.26 is inside 1.28.",
            dapo,
            mistakes=("one clip",),
        ),
        Case(
            "loss-dual-clip",
            "loss",
            batch(6, dual_clip=3.0, **wide),
            "Where the advantage is negative, the loss is at most 3 times it.",
            "arXiv 1912.09729, equation 5",
            mistakes=("no second bound",),
        ),
        Case(
            "loss-cispo",
            "loss",
            batch(7, objective="cispo", clip_low=1.0, clip_high=0.2, **wide),
            "A clipped weight without gradient on the log-probability of every token.",
            cispo,
            mistakes=("clipped tokens dropped",),
        ),
        Case(
            "loss-gspo",
            "loss",
            batch(8, ratio="sequence", aggregation=mean, clip_low=0.05, clip_high=0.05),
            "A sequence's ratio is the geometric mean over its sampled tokens.",
            gspo,
            (4,),
            mistakes=("length with observations", "sum of log-ratios"),
        ),
        Case(
            "loss-gspo-token",
            "loss",
            batch(9, ratio="sequence", aggregation=mean, advantage=by_turn),
            "With an advantage for each turn, each token's gradient is by its own advantage.",
            f"{gspo}, equation 14",
            choices=("gradient of the sequence's ratio",),
            mistakes=("length with observations",),
        ),
        Case(
            "loss-empty-row",
            "loss",
            batch(10, mask=empty, aggregation=mean),
            "A row without a trained token is in no denominator.",
            grpo,
            choices=("empty rows counted",),
            mistakes=("every token the same",),
        ),
        Case(
            "loss-zero-advantage",
            "loss",
            batch(11, advantage=zero),
            "What has advantage 0 stays in the denominators: a step with little signal is small.",
            dapo,
            mistakes=("zero advantages left out",),
        ),
        Case(
            "loss-kl",
            "loss",
            batch(12, aggregation=mean, kl_coefficient=0.1, reference=reference),
            "The divergence from the reference, k3, has the mask and the denominators of the rest.",
            f"{grpo}, equations 3 and 4",
            mistakes=("observations trained", "every token the same"),
        ),
        Case(
            "micro-batches-token-mean",
            "loss",
            batch(13, micro_batches=HALVES),
            "The gradient is that of the whole batch: denominators are of all micro-batches.",
            found,
            (12, 18),
            mistakes=("mean of means", "all but the last dropped"),
        ),
        Case(
            "micro-batches-sequence-mean",
            "loss",
            batch(14, micro_batches=HALVES, aggregation=mean),
            "The gradient of a mean over sequences is that of the whole batch.",
            found,
            (12, 17),
            mistakes=("all but the last dropped",),
        ),
        Case(
            "micro-batches-one-row",
            "loss",
            batch(15, micro_batches=EACH),
            "One row in each micro-batch: as the whole batch, and each row is in it.",
            found,
            (12, 17, 18),
            mistakes=("mean of means", "all but the last dropped"),
        ),
        Case(
            "micro-batches-entropy",
            "loss",
            batch(16, micro_batches=HALVES, entropy=entropy, entropy_coefficient=0.01),
            "The entropy bonus is a mean over the step's sampled tokens.",
            "Williams and Peng 1991; denominators as in arXiv 2604.23747",
            (12, 18),
            mistakes=("mean of means", "mean of means of the entropy", "observations trained"),
        ),
    ]


def divergences() -> list[Case]:
    logprob, reference = [-0.7, -1.9, -0.2, -3.0], [-1.1, -1.2, -0.25, -1.8]
    source, turned = "Schulman 2020, Approximating KL divergence", "the other way round"

    def case(name: str, estimator: str, must: str, *mistakes: str) -> Case:
        inputs = {"logprob": logprob, "reference": reference, "estimator": estimator}
        return Case(name, "divergence", inputs, must, source, mistakes=mistakes)

    return [
        case("divergence-k1", "k1", "x; its gradient has no signal on average.", "k2", turned),
        case("divergence-k2", "k2", "x^2 / 2, whose gradient is the divergence's.", "k1"),
        case("divergence-k3", "k3", "e^-x + x - 1 with its own gradient.", "k2", turned),
        case(
            "divergence-k3-k2",
            "k3 with the gradient of k2",
            "The value of k3 with the gradient of k2: right in both.",
            "k3",
        ),
    ]


def advantages() -> list[Case]:
    grpo = "GRPO, arXiv 2402.03300, 4.1.2"
    mask = [[1, 0, 1], [1, 1], [1, 0, 0, 1], [1, 1, 1]]

    def case(name: str, must: str, source: str, reward: Any, group: Any, **own: Any) -> Case:
        trajectory = own.pop("trajectory", list(range(len(reward))))
        inputs = {
            "estimator": own.pop("estimator", "grpo"),
            "reward": reward,
            "group": group,
            "trajectory": trajectory,
            "mask": (mask * 2)[: len(reward)],
        }
        # Frameworks add 1e-6 to 1e-4 to the deviation.
        return Case(name, "advantage", inputs, must, source, tolerance=2e-3, **own)

    return [
        case(
            "advantage-grpo",
            "A reward less its group's mean, over the group's standard deviation.",
            grpo,
            [1.0, 0.0, 0.25, 0.5, 3.0, 1.0, 1.0, 0.0],
            [0, 0, 0, 0, 1, 1, 1, 1],
            choices=("population deviation",),
            mistakes=("not divided",),
        ),
        case(
            "advantage-dr-grpo",
            "A reward less its group's mean, not divided.",
            "Dr.GRPO, arXiv 2503.20783",
            [1.0, 0.0, 0.25, 0.5],
            [0, 0, 0, 0],
            estimator="dr_grpo",
            mistakes=("divided by the deviation",),
        ),
        case(
            "advantage-rloo",
            "A reward less the mean of the others.",
            "RLOO, arXiv 2402.14740, equation 7",
            [1.0, 0.0, 0.25, 0.5],
            [0, 0, 0, 0],
            estimator="rloo",
            mistakes=("own reward in the baseline",),
        ),
        case(
            "advantage-one",
            "A group of one compares nothing: 0, and not its raw reward.",
            "the mean of no others",
            [0.8],
            [0],
            defects=(2,),
            mistakes=("raw reward",),
        ),
        case(
            "advantage-rloo-one",
            "Without others there is no baseline: 0, and not the raw reward.",
            "the mean of no others",
            [0.8],
            [0],
            estimator="rloo",
            defects=(2,),
            mistakes=("raw reward",),
        ),
        case(
            "advantage-equal",
            "A group of equal rewards has no signal: 0 without residue of rounding.",
            grpo,
            [0.1, 0.1, 0.1, 0.1],
            [0, 0, 0, 0],
            mistakes=(),
        ),
        case(
            "advantage-ungraded",
            "A trajectory without a grade is in no baseline, and is not trained on.",
            "a missing measurement is no measurement of 0",
            [1.0, 0.5, None, 0.75],
            [0, 0, 0, 0],
            defects=(6,),
            mistakes=("ungraded as 0",),
        ),
        case(
            "advantage-rows-of-a-trajectory",
            "A trajectory of three rows counts once in its group's statistics.",
            "GiGPO, arXiv 2505.10978: the episodes' advantage is over episodes",
            [1.0, 1.0, 1.0, 0.0, 0.5],
            [0, 0, 0, 0, 0],
            trajectory=[0, 0, 0, 1, 2],
            defects=(12,),
            choices=("population deviation",),
            mistakes=("rows counted",),
        ),
        case(
            "advantage-whitened",
            "Mean 0 and deviation 1 over all sampled tokens of the batch, whatever the group.",
            "REINFORCE++, arXiv 2501.03262",
            [1.0, 0.0, 0.25, 0.5],
            [0, 0, 1, 1],
            estimator="reinforce_pp",
            choices=("sample deviation",),
            mistakes=("observations counted", "returns end at observations"),
        ),
    ]


def values() -> list[Case]:
    mask = [[1, 1, 0, 0, 1, 1]]
    returns = {"discount": 0.9, "mask": mask}
    late, inside = [[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]], [[0.0, 0.0, 0.0, 0.5, 0.0, 1.0]]
    at_end = {"mask": [[1, 1, 0, 0, 1, 1, 0]], "reward": [[0.0] * 6 + [1.0]]}
    value = [[0.4, 0.6, 5.0, -7.0, 0.5, 0.7]]
    gae_inputs = {
        "estimator": "token",
        "reward": late,
        "value": value,
        "mask": mask,
        "turn": [[0, 0, 0, 0, 1, 1]],
        "after": [None],
        "discount": 0.95,
        "decay": 0.9,
    }
    plain = {
        "mask": [[1, 1, 1]],
        "reward": [[0.1, 0.0, 1.0]],
        "value": [[0.4, 0.6, 0.7]],
        "turn": [[0, 0, 0]],
    }
    ppo, masked_ppo = "arXiv 1506.02438, equation 16", "Search-R1, arXiv 2503.09516"
    plus = "REINFORCE++, arXiv 2501.03262"
    bilevel = {
        "estimator": "bilevel",
        "mask": [[1, 1, 0, 1, 1]],
        "reward": [[0.0, 0.0, 0.0, 0.0, 1.0]],
        "value": [[0.2, 0.3, 9.0, 0.4, 0.5]],
        "turn": [[0, 0, 0, 1, 1]],
        "turn_discount": 0.95,
        "discount": 1.0,
        "decay": 1.0,
    }
    return [
        Case(
            "returns-tool-output",
            "returns",
            {**returns, "reward": late},
            "Discounting counts sampled tokens; tool output between them is no step.",
            plus,
            (4,),
            mistakes=("observations discount", "ends at observations"),
        ),
        Case(
            "returns-reward-on-observation",
            "returns",
            {**returns, "reward": inside},
            "A reward that arrives with an observation belongs to the action before it.",
            plus,
            (2,),
            mistakes=(
                "rewards of observations dropped",
                "ends at observations",
                "observations discount",
            ),
        ),
        Case(
            "returns-reward-behind-the-last",
            "returns",
            {**returns, **at_end},
            "A reward behind the last sampled token is not lost.",
            plus,
            (2,),
            mistakes=("rewards of observations dropped",),
        ),
        Case(
            "gae-plain",
            "gae",
            gae_inputs | plain,
            "Generalised advantages of a row without tool output.",
            ppo,
            mistakes=(),
        ),
        Case(
            "gae-tool-output",
            "gae",
            gae_inputs,
            "The value before tool output is followed by the value after it: what the critic says "
            "of the output's own tokens is read nowhere.",
            masked_ppo,
            (4,),
            mistakes=("observations are steps", "observations have value 0"),
        ),
        Case(
            "gae-reward-on-observation",
            "gae",
            gae_inputs | {"reward": inside},
            "A reward that arrives with an observation belongs to the action before it.",
            masked_ppo,
            (2,),
            mistakes=(
                "rewards of observations dropped",
                "observations are steps",
                "observations have value 0",
            ),
        ),
        Case(
            "gae-limit",
            "gae",
            gae_inputs | plain | {"after": [0.8]},
            "A row that a limit cut off goes on: the value after it counts.",
            "Pardo et al., arXiv 1712.00378",
            choices=("the end has value 0",),
        ),
        Case(
            "bilevel-turn-without-reward",
            "gae",
            gae_inputs | bilevel,
            "A turn ends where its id says: a reward of 0 is a reward.",
            "VAGEN, arXiv 2510.16907",
            (3,),
            mistakes=("ends where rewards are not 0",),
        ),
    ]


def stopping() -> Case:
    """A policy that stops at once (probability p, reward 0.5) or goes on (0.2 for the turn) and is
    then right (q, 1) or wrong (0), in groups of two."""
    p, q = 0.3, 0.6
    ends = [
        (p, [0.5], [[1 - p, 0.0]]),
        ((1 - p) * q, [0.2, 1.0], [[-p, 0.0], [0.0, 1 - q]]),
        ((1 - p) * (1 - q), [0.2, 0.0], [[-p, 0.0], [0.0, -q]]),
    ]
    groups = [
        {"probability": round(a[0] * b[0], 10), "rewards": [a[1], b[1]], "scores": [a[2], b[2]]}
        for a in ends
        for b in ends
    ]
    return Case(
        "turns-that-the-policy-ends",
        "policy_gradient",
        {"groups": groups},
        "On average the gradient is that of the expected reward, also where the policy decides how "
        "many turns there are.",
        "the policy gradient theorem; a baseline may not depend on the action",
        (16,),
        mistakes=("compared with those that had the turn",),
    )


def sampled() -> list[Case]:
    logits = [[1.0, 0.2, -0.5, 0.7], [0.1, 1.4, 0.3, -1.0], [0.0, -0.3, 0.9, 0.4], [2.0, 0, 0, 0]]
    inputs = {
        "ids": [2, 3, 1, 0],
        "logits": logits,
        "mask": [0, 1, 0, 1],
        "temperature": 1.0,
        "kept": [None] * 4,
    }
    kept = [None, [0, 3], None, [0, 2, 3]]
    return [
        Case(
            "logprobs-shift",
            "logprobs",
            inputs,
            "A token's log-probability is by the logits before it.",
            "an autoregressive model",
            mistakes=("not shifted",),
        ),
        Case(
            "logprobs-temperature",
            "logprobs",
            inputs | {"temperature": 0.6},
            "The policy that sampled at a temperature is the one that is improved.",
            "the importance ratio of PPO is that of the sampling distribution",
            mistakes=("temperature left out", "not shifted"),
        ),
        Case(
            "logprobs-top-p",
            "logprobs",
            inputs | {"kept": kept},
            "Probabilities sum to 1 over the tokens that top-p left, as when they were sampled.",
            "DeepSeek-V3.2, arXiv 2512.02556: sampling masks",
            choices=("over the whole vocabulary",),
            mistakes=("not shifted",),
        ),
    ]


VOCABULARY = ["<user>", "<policy>", "<tool>", "<end>", "a", "b", "ab", "c", "d", "e"]
MARKERS = {"vocabulary": VOCABULARY, "marker": 1, "end": 3, "prompt": [0, 4, 3, 1]}


def episodes() -> list[Case]:
    two = [{"sampled": [4, 7, 3], "observed": [2, 8, 3, 1]}, {"sampled": [9, 3]}]
    quoting = [{"sampled": [4, 3], "observed": [2, 1, 8, 9, 3, 1]}, {"sampled": [7, 3]}]
    forced = [{"sampled": [4, 7], "forced": [3], "observed": [2, 8, 3, 1]}, {"sampled": [9, 3]}]
    apart = [{"sampled": [4, 5, 3], "observed": [2, 8, 3, 1]}, {"sampled": [7, 4, 5, 3]}]
    anew = [
        {"sampled": [4, 3], "observed": [2, 8, 3, 1]},
        {"sampled": [5, 3], "context": [0, 4, 3, 1, 4, 3, 2, 9, 3, 1]},
    ]
    own = "the policy gradient is over what the policy sampled"
    return [
        Case(
            "episode-two-turns",
            "episode",
            MARKERS | {"turns": two},
            "What the policy sampled is trained in every turn, and nothing else is.",
            own,
            (4,),
            mistakes=("observations trained", "end not trained", "last turn alone"),
        ),
        Case(
            "episode-markers-in-output",
            "episode",
            MARKERS | {"turns": quoting},
            "Tool output that holds the policy's own marker is tool output.",
            own,
            (4,),
            mistakes=("by markers", "observations trained"),
        ),
        Case(
            "episode-forced-token",
            "episode",
            MARKERS | {"turns": forced},
            "A closing token that the engine set was not sampled.",
            own,
            (10,),
            mistakes=("forced trained",),
        ),
        Case(
            "episode-not-canonical",
            "episode",
            MARKERS | {"turns": apart},
            "What was sampled as two tokens is trained as two, where the tokenizer would make one.",
            own,
            (5,),
            mistakes=("encoded again",),
        ),
        Case(
            "episode-new-context",
            "episode",
            MARKERS | {"turns": anew, "own": [4]},
            "A context that begins with a part of another one trains only what is new in it.",
            own,
            (13,),
            mistakes=("copies trained",),
        ),
    ]


def grades() -> list[Case]:
    shown = [
        {"source": "policy", "text": "<search>who built it</search>"},
        {"source": "tool", "text": "<information><answer>Eiffel</answer></information>"},
        {"source": "policy", "text": "I do not know."},
    ]
    parts = [*shown[:2], {"source": "policy", "text": "<answer>Eiffel</answer>"}]
    rule = "the reward is for what the policy did"
    return [
        Case(
            "grade-answer-in-tool-output",
            "grade",
            {"parts": shown, "answer": "Eiffel"},
            "An answer that stands in tool output alone is not the policy's.",
            rule,
            (1,),
            mistakes=("tool output graded",),
        ),
        Case(
            "grade-own-answer",
            "grade",
            {"parts": parts, "answer": "Eiffel"},
            "The policy's own answer counts.",
            rule,
            mistakes=(),
        ),
    ]


def dialogues() -> list[Case]:
    def call(tool: str, place: int, seconds: float) -> dict[str, str]:
        return {"tool": tool, "arguments": json.dumps({"place": place, "seconds": seconds})}

    three = [call("look", 1, 0.06), call("read", 2, 0.0), call("look", 3, 0.01)]
    broken = {"tool": "look", "arguments": '{"place": 1, "seconds": '}
    own = "results are told apart by their order"
    return [
        Case(
            "dialogue-order-of-results",
            "dialogue",
            {"turns": [three]},
            "Results stand in the order of their calls, whatever each takes.",
            own,
            (8,),
            mistakes=("in order of arrival", "asynchronous tools last"),
        ),
        Case(
            "dialogue-malformed-call",
            "dialogue",
            {"turns": [[broken], [call("read", 2, 0.0)]]},
            "A call that cannot be read is an error that the policy is shown, and it goes on.",
            "a policy learns from what comes of its mistakes",
            (9,),
            mistakes=("the episode ends", "dropped"),
        ),
        Case(
            "verdict-unknown",
            "verdict",
            {"replies": [1.0, 0.0, None, "yes", {"raises": "KeyError: 'criteria'"}]},
            "What a grader cannot say is no grade: neither right nor wrong.",
            "a reward is what was judged",
            (6, 14),
            mistakes=("counts as right", "counts as wrong"),
        ),
    ]


def runs() -> list[Case]:
    draw = np.random.default_rng(15)
    calls = [
        {"tool": "look", "arguments": json.dumps({"place": n, "seconds": seconds})}
        for n, seconds in ((1, 0.0), (2, 600.0), (3, 0.0))
    ]
    steps = [
        [[round(float(n), 3)] * len(row) for n, row in zip(draw.normal(size=4), MASKS, strict=True)]
        for _ in range(5)
    ]
    optimizer = {
        "learning_rate": 0.05,
        "betas": [0.9, 0.95],
        "weight_decay": 0.1,
        "max_gradient_norm": 0.2,
        "warmup_steps": 4,
    }
    tables = [np.round(draw.normal(size=(8, 6)), 3).tolist() for _ in range(2)]
    same = "a run that was stopped equals one that was not"
    return [
        Case(
            "together-a-tool-that-hangs",
            "together",
            {"calls": calls, "limit": 2.0},
            "A tool that does not come back ends its own episode, which has its grade, and costs "
            "no other.",
            "one episode costs no other",
            (7,),
            choices=("not graded", "shown as an error"),
            mistakes=("waited for", "one ends all"),
        ),
        Case(
            "resume-weights",
            "resume",
            batch(9) | {"steps": steps, "stop_after": 2} | optimizer,
            "Weights, moments, and the learning rate's schedule go on where they were.",
            same,
            (11,),
            mistakes=("moments forgotten", "warmed up again", "a step skipped", "a step repeated"),
        ),
        Case(
            "resume-tasks",
            "order",
            {"tasks": 10, "tasks_per_step": 3, "steps": 10, "stop_after": 5},
            "Each pass plays each task once, stopped or not.",
            same,
            (11,),
            mistakes=("begun anew", "a step skipped"),
        ),
        Case(
            "reload-tied-embeddings",
            "reload",
            {"embeddings": tables, "prompt": [3]},
            "New weights reach both ends of a model whose embeddings are tied.",
            "the policy that samples is the one that was trained",
            (15,),
            mistakes=("nothing reaches it", "the input's stale", "the output's stale"),
        ),
    ]


def cases() -> list[Case]:
    return [
        *episodes(),
        *losses(),
        *divergences(),
        *advantages(),
        *values(),
        stopping(),
        *sampled(),
        *grades(),
        *dialogues(),
        *runs(),
    ]


def make() -> dict[str, Any]:
    """All that `vectors.json` holds."""
    vectors = [vector(case) for case in cases()]
    posed = {n: [v["id"] for v in vectors if n in v["defects"]] for n in DEFECTS}
    defects = {str(n): {"what": what, "vectors": posed[n]} for n, what in DEFECTS.items()}
    return {
        "made_by": "python -m conformance.make",
        "operations": OPERATIONS,
        "defects": defects,
        "vectors": vectors,
    }


def vector(case: Case) -> dict[str, Any]:
    compute = REFERENCE[case.operation]
    others = [("choice", name) for name in case.choices]
    others += [("defect", name) for name in case.mistakes]
    return {
        "id": case.id,
        "operation": case.operation,
        "must": case.must,
        "source": case.source,
        "defects": list(case.defects),
        "inputs": case.inputs,
        "expected": rounded(compute(case.inputs)),
        "others": [
            {"kind": kind, "name": name, "gives": rounded(compute(case.inputs, name))}
            for kind, name in others
        ],
        "tolerance": case.tolerance,
    }


if __name__ == "__main__":
    FILE.write_text(written(make()) + "\n")
