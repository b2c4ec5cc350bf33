"""Conformance vectors for reinforcement learning of language-model agents, and what runs them.

    python run.py turnwise               # a table: pass, differs, not posed
    python run.py trl verl --json r.json # each in this interpreter, which must have it installed

A vector (`vectors.json`) is a batch of plain lists and what must come of it: loss, gradient, mask,
advantage. It has the defect that it is there for, the source of what it expects, and answers that
are known: a `choice` is a documented alternative, a `defect` a mistake. Nothing but numpy is needed
here; a framework is imported when it is named.

To try another framework, write a function that returns a dictionary of operations, and add it to
ADAPTERS. An operation that is not there cannot be posed; one that raises NotPosed says why:

    def mine() -> dict:
        from mine import group_advantages

        def advantage(inputs):
            if inputs["estimator"] != "grpo":
                raise NotPosed("GRPO only")
            numbers = group_advantages(inputs["reward"], inputs["group"])
            return {"advantage": on_tokens(numbers, inputs["mask"])}

        return {"version": "1.0", "advantage": advantage}

`operations` in the file says what each one gets and gives. Rows are ragged lists, one number a
token; `mask` is 1 where the policy sampled the token.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "vectors.json"
Adapter = dict[str, Any]
Inputs = dict[str, Any]
Outputs = dict[str, Any]


class NotPosed(Exception):
    """A vector cannot be put to a framework; the message says why."""


# Helpers for adapters


def on_tokens(numbers: Any, mask: list[list[int]]) -> list[list[float]]:
    """A row's number on its sampled tokens, 0 on the others."""
    return [[float(n) * m for m in row] for n, row in zip(numbers, mask, strict=True)]


def padded(rows: list[list[float]], width: int, fill: float = 0.0) -> list[list[float]]:
    """Rows of one width, filled on the right."""
    return [[*row, *[fill] * (width - len(row))] for row in rows]


def like(table: Any, rows: list[list[Any]]) -> list[list[float]]:
    """The beginning of each row of a padded table, as long as in `rows`."""
    return [[float(n) for n in found[: len(row)]] for found, row in zip(table, rows, strict=True)]


def masked(table: Any, mask: list[list[int]]) -> list[list[float]]:
    """`like`, with 0 where the mask is."""
    return [
        [n if m else 0.0 for n, m in zip(row, own, strict=True)]
        for row, own in zip(like(table, mask), mask, strict=True)
    ]


def width_of(inputs: Inputs) -> int:
    return max(inputs.get("width") or 0, *(len(row) for row in inputs["mask"]))


def expected_gradient(inputs: Inputs, advantage: Callable[[list[list[float]]], Any]) -> Outputs:
    """What a batch's gradient is on average: `advantage` gets the turns' rewards of a group, and
    gives each turn's advantage; the gradient is the mean over episodes of their products with the
    scores."""
    total = np.zeros(len(inputs["groups"][0]["scores"][0][0]))
    for group in inputs["groups"]:
        found = advantage(group["rewards"])
        products = [
            a * np.array(score)
            for row, scores in zip(found, group["scores"], strict=True)
            for a, score in zip(row, scores, strict=True)
        ]
        total += group["probability"] * np.sum(products, axis=0) / len(found)
    return {"gradient": total.tolist()}


def letters() -> Any:
    """A tokenizer of transformers with a token for each character of ASCII."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {chr(n): n for n in range(128)}
    core = Tokenizer(models.WordLevel({**alphabet, "<pad>": 128, "<end>": 129}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens(["<pad>", "<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")


# Comparing


@dataclass(frozen=True)
class Result:
    """What a framework made of a vector."""

    id: str
    verdict: str
    """pass, choice, differs, not posed, error."""
    note: str = ""
    distance: float | None = None
    """Largest difference from what is expected, over 1 or the largest number expected."""
    found: Outputs | None = field(default=None, repr=False)


def distance(expected: Any, found: Any) -> float:
    """Infinite where the form differs, or a number is none."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return math.inf
        return max(distance(one, found.get(key)) for key, one in expected.items())
    try:
        a, b = flat(expected), flat(found)
    except TypeError:
        return math.inf
    if len(a) != len(b) or not np.isfinite(b).all():
        return math.inf
    return float(np.abs(np.subtract(a, b)).max() / max(1e-12, np.abs(a).max(), 0.01)) if a else 0.0


def flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [n for one in value for n in flat(one)]
    return [float(value)]


def rounded(value: Any) -> Any:
    """Numbers to ten digits, so that the file is the same on every machine."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.10g}") + 0.0 if isinstance(value, float) else value


def judge(vector: dict[str, Any], found: Outputs) -> Result:
    """Compare with what is expected, then with the known other answers."""
    far = distance(vector["expected"], found)
    if far <= vector["tolerance"]:
        return Result(vector["id"], "pass", distance=far)
    for other in vector["others"]:
        if distance(other["gives"], found) <= vector["tolerance"]:
            verdict = "choice" if other["kind"] == "choice" else "differs"
            return Result(vector["id"], verdict, other["name"], far, rounded(found))
    return Result(vector["id"], "differs", "", far, rounded(found))


def pose(vector: dict[str, Any], adapter: Adapter) -> Result:
    operation = adapter.get(vector["operation"])
    if operation is None:
        return Result(vector["id"], "not posed", "it has no such part")
    try:
        return judge(vector, operation(json.loads(json.dumps(vector["inputs"]))))
    except NotPosed as reason:
        return Result(vector["id"], "not posed", str(reason))
    except Exception as error:  # noqa: BLE001 - what a framework raises is its answer
        return Result(vector["id"], "error", f"{type(error).__name__}: {error}"[:300])


# Adapters


def turnwise() -> Adapter:
    """turnwise's learner, credits and records, without a run around them: the model is a table of
    log-probabilities."""
    from importlib.metadata import version

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from turnwise.algorithms import make_algorithm
    from turnwise.algorithms.kl import k2, k3, k3_plus
    from turnwise.config import LearningConfig
    from turnwise.forward.logprobs import score_tokens
    from turnwise.learning.batch import collate, policy_examples
    from turnwise.learning.credits import Credits, estimate
    from turnwise.learning.policy import PolicyLearner
    from turnwise.learning.ranks import Alone
    from turnwise.learning.scoring import score
    from turnwise.learning.signals.base import SignalArrays, Signals
    from turnwise.rewards.answer import exact_match
    from turnwise.scaffolds.tags import TagsScaffold
    from turnwise.tokens import KeptTokens, Segment, Source, Tokens
    from turnwise.types import Group, Outcome, Task, Trajectory, Verdict

    class Rows(Alone):
        """Computes with a table where a model would be."""

        def __init__(self, **tables: Any) -> None:
            self.tables = tables

        def shard(self, model: Any) -> Any:
            def compute(function: Any, batch: Any, *arguments: Any) -> Any:
                rows = [int(name.split()[0]) for name in batch.names]
                width = batch.selected.shape[1]
                return tuple(t[rows, :width][batch.selected] for t in self.tables.values())

            return compute

    @cache
    def small_model(width: int = 8, use: str = "policy") -> Any:
        """One for each use, as making one and looking at it takes longer than all else."""
        torch.manual_seed(0)
        sizes = {"hidden_size": width, "intermediate_size": 8, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
        return LlamaForCausalLM(LlamaConfig(vocab_size=width, **sizes, **heads))

    def record(mask: list[int], logprob: list[float] | None = None, turn: Any = None) -> Tokens:
        """A prompt of one token, then a row."""
        tokens = Tokens.empty().with_segments([Segment([0], Source.USER)], 0)
        for t, m in enumerate(mask):
            k = turn[t] if turn else 0
            if m:
                numbers = [logprob[t] if logprob else -1.0]
                tokens = tokens.with_sampled([1], numbers, version=0, turn=k)
            else:
                tokens = tokens.with_segments([Segment([2], Source.TOOL)], k)
        return tokens

    def trajectory(
        group: Any, episode: int, tokens: Tokens, reward: float | None = 1.0, **judged: Any
    ) -> Trajectory:
        outcome = Outcome.INFRASTRUCTURE_STEP if reward is None else Outcome.SUCCESS
        verdict = None if reward is None else Verdict(reward, True, **judged)
        name = str(group)
        return Trajectory(
            Task(name, "?"), name, episode, 0, tokens=tokens, outcome=outcome, verdict=verdict
        )

    def parts_of(inputs: Inputs) -> dict[str, Any]:
        numbers = {"clip_low": inputs["clip_low"], "clip_high": inputs["clip_high"]}
        if inputs["dual_clip"]:
            numbers["dual_clip"] = inputs["dual_clip"]
        if inputs["aggregation"] == "constant":
            numbers["length"] = float(inputs["length"])
        return {
            "objective": inputs["objective"],
            "ratio_level": inputs["ratio"],
            "aggregation": inputs["aggregation"],
            "kl_coefficient": inputs.get("kl_coefficient", 0.0),
            "entropy_coefficient": inputs.get("entropy_coefficient", 0.0),
            **numbers,
        }

    def loss(inputs: Inputs) -> Outputs:
        width, mask = width_of(inputs), inputs["mask"]
        table = torch.tensor(padded(inputs["logprob"], width), requires_grad=True)
        entropy = torch.tensor(padded(inputs.get("entropy", mask), width), requires_grad=True)
        reference = torch.tensor(padded(inputs.get("reference", inputs["logprob"]), width))
        algorithm = make_algorithm("grpo", parts_of(inputs))
        # The learner cuts micro-batches itself, by padded tokens, and no smaller than 64.
        budget = max(len(rows) for rows in inputs["micro_batches"]) * (max(map(len, mask)) + 1)
        config = LearningConfig(learning_rate=1e-6).model_copy(
            update={"tokens_per_micro_batch": budget}
        )
        other = small_model(use="reference") if algorithm.has_reference else None
        learner = PolicyLearner(
            small_model(), other, config, algorithm, ranks=Rows(logprob=table, entropy=entropy)
        )
        learner._compute_reference = other and Rows(logprob=reference).shard(other)
        members = [
            trajectory(i, 0, record(row, inputs["old_logprob"][i])) for i, row in enumerate(mask)
        ]
        given = {
            member.id: np.array([0.0, *inputs["advantage"][i]], np.float32) * member.tokens.mask
            for i, member in enumerate(members)
        }
        groups = [Group(member.group, (member,)) for member in members]
        report = learner.update(groups, Credits(given, frozenset(given)))
        # The learner reports the mean over all trained tokens; the gradient is what it applied.
        assert table.grad is not None
        found = {"loss": report.metrics["policy/loss"], "gradient": like(table.grad.tolist(), mask)}
        if entropy.grad is not None:
            found["entropy_gradient"] = like(entropy.grad.tolist(), mask)
        return found

    def divergence(inputs: Inputs) -> Outputs:
        known = {"k2": k2, "k3": k3, "k3 with the gradient of k2": k3_plus}
        if inputs["estimator"] not in known:
            raise NotPosed("k1 is a reward there and no term of the loss")
        logprob = torch.tensor(inputs["logprob"], requires_grad=True)
        value = known[inputs["estimator"]](logprob, torch.tensor(inputs["reference"]))
        value.sum().backward()
        return {"value": value.tolist(), "gradient": logprob.grad.tolist()}

    def credited(groups: list[Group], algorithm: Any) -> dict[Any, Any]:
        return dict(estimate(groups, Signals(), algorithm).advantages)

    def advantage(inputs: Inputs) -> Outputs:
        mask, ids = inputs["mask"], inputs["trajectory"]
        rows = {k: [i for i, own in enumerate(ids) if own == k] for k in dict.fromkeys(ids)}
        groups: dict[Any, list[Trajectory]] = {}
        for k, own in rows.items():
            # The rows of a trajectory are its contexts: one record.
            tokens = record([m for i in own for m in mask[i]])
            group = inputs["group"][own[0]]
            member = trajectory(group, k, tokens, inputs["reward"][own[0]])
            groups.setdefault(group, []).append(member)
        algorithm = make_algorithm(inputs["estimator"], {})
        found = credited([Group(str(g), tuple(m)) for g, m in groups.items()], algorithm)
        table: list[list[float]] = [[0.0] * len(row) for row in mask]
        for k, own in rows.items():
            numbers = found.get((str(inputs["group"][own[0]]), k))
            start = 1
            for i in own if numbers is not None else []:
                table[i] = numbers[start : start + len(mask[i])].tolist()
                start += len(mask[i])
        return {"advantage": table}

    def judged(inputs: Inputs, row: int) -> Group:
        """A reward is its turn's, whose last token it arrives behind."""
        reward, mask = inputs["reward"][row], inputs["mask"][row]
        # Each sampled token is a turn, if turns are not given: rewards are of tokens then.
        turn = inputs.get("turn", [None])[row] if inputs.get("estimator") == "bilevel" else None
        turn = turn or [max(0, sum(mask[: t + 1]) - 1) for t in range(len(mask))]
        rewards = [
            sum(r for r, k in zip(reward, turn, strict=True) if k == one)
            for one in range(max(turn) + 1)
        ]
        tokens = record(mask, turn=turn)
        return Group(str(row), (trajectory(row, 0, tokens, 0.0, turn_rewards=rewards),))

    def returns(inputs: Inputs) -> Outputs:
        overrides = {"whitening": False, "discount": inputs["discount"]}
        algorithm = make_algorithm("reinforce_pp", overrides)
        groups = [judged(inputs, row) for row in range(len(inputs["mask"]))]
        return {"returns": [n[1:].tolist() for n in credited(groups, algorithm).values()]}

    def gae(inputs: Inputs) -> Outputs:
        name = {"token": "ppo", "bilevel": "bilevel_ppo"}[inputs["estimator"]]
        numbers = {key: inputs[key] for key in ("discount", "decay")}
        if "turn_discount" in inputs:
            numbers["turn_discount"] = inputs["turn_discount"]
        algorithm = make_algorithm(name, {"whitening": False, **numbers})
        groups = [judged(inputs, row) for row in range(len(inputs["mask"]))]
        values = {
            group.trajectories[0].id: SignalArrays(values=np.array([0.0, *row], np.float32))
            for group, row in zip(groups, inputs["value"], strict=True)
        }
        found = estimate(groups, Signals(values), algorithm).advantages
        return {"advantage": [row[1:].tolist() for row in found.values()]}

    def policy_gradient(inputs: Inputs) -> Outputs:
        algorithm = make_algorithm("turn_rloo", {})

        def advantage(rewards: list[list[float]]) -> list[list[float]]:
            members = [
                trajectory(
                    "g",
                    i,
                    record([1] * len(row), turn=list(range(len(row)))),
                    0.0,
                    turn_rewards=row,
                )
                for i, row in enumerate(rewards)
            ]
            return [
                n[1:].tolist() for n in credited([Group("g", tuple(members))], algorithm).values()
            ]

        return expected_gradient(inputs, advantage)

    def logprobs(inputs: Inputs) -> Outputs:
        size = len(inputs["logits"][0])
        model = small_model(size, "logits")
        model.lm_head.weight.data = torch.eye(size)
        logits = torch.tensor([inputs["logits"]])

        def compute(
            measure: Any, seen: Any, selected: Any, targets: Any, temperature: float, _: Any
        ) -> Any:
            hidden = logits[:, : seen.shape[1]][selected]
            kept = measure.keywords.get("kept")
            return score_tokens(model, hidden, targets, temperature, kept=kept)[0].detach()

        ids, mask = np.array(inputs["ids"]), np.array(inputs["mask"], bool)
        kept = KeptTokens.of([row or [] for row in inputs["kept"]])
        found = score(
            model,
            [(ids, mask)],
            LearningConfig(),
            inputs["temperature"],
            kept=[kept if any(inputs["kept"]) else None],
            compute=compute,
        )
        return {"logprob": np.nan_to_num(found[0]).tolist()}

    def episode(inputs: Inputs) -> Outputs:
        tokens = Tokens.empty().with_segments([Segment(inputs["prompt"], Source.USER)], 0)
        for k, turn in enumerate(inputs["turns"]):
            context = turn.get("context")
            if context:
                tokens = anew(tokens, context, k)
            numbers = [-1.0] * len(turn["sampled"])
            tokens = tokens.with_sampled(turn["sampled"], numbers, version=0, turn=k)
            for name, source in (("forced", Source.TEMPLATE), ("observed", Source.TOOL)):
                if turn.get(name):
                    tokens = tokens.with_segments([Segment(turn[name], source)], k)
        member = trajectory("g", 0, tokens)
        credits = Credits({member.id: np.ones(len(tokens), np.float32)}, frozenset([member.id]))
        algorithm = make_algorithm("grpo", {})
        examples = policy_examples([Group("g", (member,))], credits, algorithm, True)
        # One at a time, in order: a micro-batch would be sorted by length.
        batches = [collate([one], torch.device("cpu")) for one in examples]
        return {"trained": [i for one in batches for i in one.targets.tolist()]}

    def anew(tokens: Tokens, context: list[int], turn: int) -> Tokens:
        """A new context: a copy of what it shares with the one before, then what is new."""
        same = 0
        while same < len(tokens) and tokens.ids[same] == context[same]:
            same += 1
        tokens = tokens.with_context(np.arange(same))
        return tokens.with_segments([Segment(context[same:], Source.TOOL)], turn)

    def grade(inputs: Inputs) -> Outputs:
        tokenizer = letters()
        scaffold = TagsScaffold(tokenizer, [], instructions="")
        own = [part["text"] for part in inputs["parts"] if part["source"] == "policy"]
        answers = [scaffold.parse(tokenizer.encode(text)).answer for text in own]
        last = next((one for one in reversed(answers) if one is not None), None)
        return {"reward": float(exact_match(last, [inputs["answer"]]))}

    return {
        "version": version("turnwise"),
        "loss": loss,
        "divergence": divergence,
        "advantage": advantage,
        "returns": returns,
        "gae": gae,
        "policy_gradient": policy_gradient,
        "logprobs": logprobs,
        "episode": episode,
        "grade": grade,
    }


ADAPTERS: dict[str, Callable[[], Adapter]] = {"turnwise": turnwise}


# The command


def written(data: Any, depth: int = 4, indent: int = 0) -> str:
    """JSON with a line for each member, down to a depth."""
    if not depth or not isinstance(data, dict | list) or not data:
        return json.dumps(data)
    pairs = [(f"{json.dumps(k)}: ", v) for k, v in data.items()] if isinstance(data, dict) else None
    pairs = pairs or [("", one) for one in data]
    space = " " * (indent + 1)
    lines = [space + key + written(value, depth - 1, indent + 1) for key, value in pairs]
    opening, closing = "{}" if isinstance(data, dict) else "[]"
    return "\n".join([opening, ",\n".join(lines), " " * indent + closing])


def report(name: str, vectors: list[dict[str, Any]]) -> dict[str, Any]:
    """What a framework makes of all vectors."""
    adapter = ADAPTERS[name]()
    results = [pose(vector, adapter) for vector in vectors]
    return {
        "framework": name,
        "version": adapter["version"],
        "python": sys.version.split()[0],
        "results": [
            {k: v for k, v in asdict(one).items() if v not in (None, "")} for one in results
        ],
    }


def table(reports: list[dict[str, Any]]) -> str:
    """A row for each vector, a column for each framework."""
    columns = [f"{one['framework']} {one['version']}" for one in reports]
    by_id = [{r["id"]: r for r in one["results"]} for one in reports]
    ids = [r["id"] for r in reports[0]["results"]]
    rows = [[vector, *(cell(found[vector]) for found in by_id)] for vector in ids]
    widths = [max(map(len, column)) for column in zip(["vector", *columns], *rows, strict=True)]
    lines = [["vector", *columns], ["-" * w for w in widths], *rows]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def cell(result: dict[str, Any]) -> str:
    note = result.get("note", "")
    return f"{result['verdict']}: {note}"[:60] if note else result["verdict"]


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if something differs from what is expected, and by no documented choice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("frameworks", nargs="*", choices=[[], *ADAPTERS], metavar="FRAMEWORK")
    parser.add_argument("--json", type=Path, help="write all results to a file")
    options = parser.parse_args(arguments)
    if not options.frameworks:
        parser.error(f"name one or more of {', '.join(ADAPTERS)}")
    vectors = json.loads(FILE.read_text())["vectors"]
    reports = [report(name, vectors) for name in options.frameworks]
    if options.json:
        options.json.write_text(written(reports) + "\n")
    print(table(reports))
    verdicts = [r["verdict"] for one in reports for r in one["results"]]
    return int(any(verdict in ("differs", "error") for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
