"""Conformance vectors for reinforcement learning of language-model agents, and what runs them.

    python run.py turnwise               # a table: pass, differs, not posed
    python run.py trl verl --json r.json # each in this interpreter, which must have it installed

A vector (`vectors.json`) is a batch of plain lists and what must come of it: loss, gradient, mask,
advantage. It has the defect that it is there for, the source of what it expects, and answers that
are known: a `choice` is another convention, a `defect` a mistake. Nothing but numpy is needed
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
from itertools import chain
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
    """turnwise's learner, credits, records and loop of episodes, without a run around them: the
    model is a table of log-probabilities."""
    import asyncio
    import tempfile
    from importlib.metadata import version

    import torch
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM

    from turnwise.algorithms import make_algorithm
    from turnwise.algorithms.kl import k2, k3, k3_plus
    from turnwise.config import LearningConfig, RolloutConfig
    from turnwise.engines.base import Completion, Sampling
    from turnwise.engines.embedded import EmbeddedEngine
    from turnwise.environments.base import Environment
    from turnwise.forward.logprobs import score_tokens
    from turnwise.learning.batch import collate, policy_examples
    from turnwise.learning.credits import Credits, estimate
    from turnwise.learning.policy import PolicyLearner
    from turnwise.learning.ranks import Alone
    from turnwise.learning.scoring import score
    from turnwise.learning.signals.base import SignalArrays, Signals
    from turnwise.rewards.answer import exact_match
    from turnwise.rollout.loop import EpisodeLoop
    from turnwise.rollout.order import tasks_of_step
    from turnwise.scaffolds.tags import TagsScaffold
    from turnwise.storage import checkpoint, tensors
    from turnwise.tokens import KeptTokens, Segment, Source, Tokens
    from turnwise.tools.tool import tool
    from turnwise.types import Action, Group, Outcome, Task, Trajectory, Verdict

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

    def new_model(words: int = 8, width: int = 8, tied: bool = False) -> Any:
        torch.manual_seed(0)
        sizes = {"hidden_size": width, "intermediate_size": 8, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
        config = LlamaConfig(vocab_size=words, tie_word_embeddings=tied, **sizes, **heads)
        return LlamaForCausalLM(config)

    @cache
    def small_model(width: int = 8, use: str = "policy") -> Any:
        """One for each use, as making one and looking at it takes longer than all else."""
        return new_model(width, width)

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

    def cut_as(inputs: Inputs, **numbers: Any) -> Any:
        """The learner cuts micro-batches itself, by padded tokens, and no smaller than 64."""
        most = max(len(rows) for rows in inputs["micro_batches"])
        numbers["tokens_per_micro_batch"] = most * (width_of(inputs | {"width": None}) + 1)
        return LearningConfig(learning_rate=1e-6).model_copy(update=numbers)

    def updated(learner: Any, inputs: Inputs, advantage: list[list[float]]) -> dict[str, float]:
        """The metrics of one update."""
        members = [
            trajectory(i, 0, record(row, inputs["old_logprob"][i]))
            for i, row in enumerate(inputs["mask"])
        ]
        given = {
            member.id: np.array([0.0, *own], np.float32) * member.tokens.mask
            for member, own in zip(members, advantage, strict=True)
        }
        groups = [Group(member.group, (member,)) for member in members]
        return dict(learner.update(groups, Credits(given, frozenset(given))).metrics)

    def loss(inputs: Inputs) -> Outputs:
        width, mask = width_of(inputs), inputs["mask"]
        table = torch.tensor(padded(inputs["logprob"], width), requires_grad=True)
        entropy = torch.tensor(padded(inputs.get("entropy", mask), width), requires_grad=True)
        reference = torch.tensor(padded(inputs.get("reference", inputs["logprob"]), width))
        algorithm = make_algorithm("grpo", parts_of(inputs))
        other = small_model(use="reference") if algorithm.has_reference else None
        rows = Rows(logprob=table, entropy=entropy)
        learner = PolicyLearner(small_model(), other, cut_as(inputs), algorithm, ranks=rows)
        learner._compute_reference = other and Rows(logprob=reference).shard(other)
        metrics = updated(learner, inputs, inputs["advantage"])
        # The learner reports the mean over all trained tokens; the gradient is what it applied.
        assert table.grad is not None
        found = {"loss": metrics["policy/loss"], "gradient": like(table.grad.tolist(), mask)}
        if entropy.grad is not None:
            found["entropy_gradient"] = like(entropy.grad.tolist(), mask)
        return found

    def resume(inputs: Inputs) -> Outputs:
        names = "learning_rate", "betas", "weight_decay", "max_gradient_norm", "warmup_steps"
        config = cut_as(inputs, **{name: inputs[name] for name in names})
        steps, stop = inputs["steps"], inputs["stop_after"]

        def begun(table: Any) -> Any:
            """A learner of a model of which the table is the one weight that is trained."""
            model = new_model().requires_grad_(False)
            model.table = torch.nn.Parameter(table)
            rows = Rows(logprob=model.table, entropy=torch.zeros_like(table))
            algorithm = make_algorithm("grpo", parts_of(inputs))
            return PolicyLearner(model, None, config, algorithm, ranks=rows)

        first = begun(torch.tensor(padded(inputs["logprob"], width_of(inputs))))
        for advantage in steps[:stop]:
            updated(first, inputs, advantage)
        with tempfile.TemporaryDirectory() as place:
            given = Path(place), stop, first.model, letters(), {}, first.state()
            saved = checkpoint.load(checkpoint.save(*given))
            second = begun(load_file(saved.folder / "model.safetensors")["table"])
            second.load_state(tensors.read(saved.learner))
        for advantage in steps[stop:]:
            updated(second, inputs, advantage)
        return {"logprob": like(second.model.table.tolist(), inputs["mask"])}

    def order(inputs: Inputs) -> Outputs:
        """A step's tasks come of its number alone, so a run that stops has nothing to keep."""
        tasks = [Task(str(n), "?") for n in range(inputs["tasks"])]
        count = inputs["tasks_per_step"]
        drawn = [
            one.id for n in range(inputs["steps"]) for one in tasks_of_step(tasks, n, count, 0)
        ]
        return {"times": sorted(drawn.count(task.id) for task in tasks)}

    def reload(inputs: Inputs) -> Outputs:
        before, after = (torch.tensor(table) for table in inputs["embeddings"])
        model = new_model(*before.shape, tied=True).eval()
        model.load_state_dict({name: torch.zeros_like(w) for name, w in model.state_dict().items()})
        model.model.norm.weight.data.fill_(1.0)
        model.model.embed_tokens.weight.data.copy_(before)

        async def asked() -> Completion:
            engine = EmbeddedEngine(
                model, letters(), max_sequences=1, max_tokens=8, deterministic=True
            )
            engine.open("asked")
            sampling = Sampling(max_tokens=1, temperature=0.0)
            await engine.generate(inputs["prompt"], sampling, session="asked")
            await engine.load_weights({"model.embed_tokens.weight": after}, 1)
            return await engine.generate(inputs["prompt"], sampling, session="asked")

        found = asyncio.run(asked())
        return {"token": found.tokens[0], "logprob": float(found.logprobs[0])}

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

    class Room(Environment):
        """Tools of two kinds, and a grader that replies what it is told to."""

        reply: Any = 0.0

        @tool
        async def look(self, place: int, seconds: float) -> str:
            """Look somewhere."""
            await asyncio.sleep(seconds)
            return str(place)

        @tool
        def read(self, place: int, seconds: float) -> str:
            """Read something."""
            return str(place)

        def verify(self, trajectory: Trajectory) -> Any:
            if isinstance(self.reply, dict):
                raise KeyError(self.reply["raises"])
            return self.reply if self.reply is None else Verdict(self.reply, self.reply == 1)

    class Spoken(EpisodeLoop):
        """An episode whose turns are written beforehand."""

        texts: tuple[str, ...] = ()

        async def _begin(self) -> None:
            tokenizer = letters()
            tools = self.prototype.tools()
            self.scaffold = TagsScaffold(tokenizer, tools, parallel_calls=True)
            self.written = [tokenizer.encode(text) for text in (*self.texts, "<answer>.</answer>")]
            await self._reset()

        async def _act(self, turn: int) -> Action:
            return self.scaffold.parse(self.written[turn])

        async def _observe(self, *_: Any) -> None:
            """What is shown is read at the end."""

    def episode_of(reply: Any, texts: tuple[str, ...] = (), **limits: Any) -> Spoken:
        room, planned = Room(), Trajectory(Task("t", "?"), "g", 0, 0)
        room.reply = reply
        episode = Spoken(planned=planned, prototype=room, limits=RolloutConfig(**limits))
        episode.texts = texts
        return episode

    def spoken(calls: list[dict[str, str]]) -> str:
        texts = (f"<{one['tool']}>{one['arguments']}</{one['tool']}>" for one in calls)
        return "".join(texts) + "<end>"

    def shown(trajectory: Trajectory) -> list[list[int]]:
        return [
            [-1] if turn.action.error else [int(one.content) for one in turn.step.results]
            for turn in trajectory.turns
            if turn.step is not None and (turn.action.calls or turn.action.error)
        ]

    def dialogue(inputs: Inputs) -> Outputs:
        texts = tuple(spoken(turn) for turn in inputs["turns"])
        found = asyncio.run(episode_of(0.0, texts).run())
        return {"turns": len(found.turns) - 1, "shown": shown(found)}

    def together(inputs: Inputs) -> Outputs:
        episodes = [
            episode_of(1.0, (spoken([call]),), max_seconds=inputs["limit"])
            for call in inputs["calls"]
        ]

        async def all_of_them() -> list[Trajectory]:
            return await asyncio.gather(*(one.run() for one in episodes))

        found = asyncio.run(all_of_them())
        graded = [int(one.reward is not None) for one in found]
        return {"graded": graded, "shown": [list(chain(*shown(one))) for one in found]}

    def verdict(inputs: Inputs) -> Outputs:
        rewards = [asyncio.run(episode_of(reply).run()).reward for reply in inputs["replies"]]
        graded = [int(reward is not None) for reward in rewards]
        return {"graded": graded, "reward": [reward or 0.0 for reward in rewards]}

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
        "dialogue": dialogue,
        "together": together,
        "verdict": verdict,
        "resume": resume,
        "order": order,
        "reload": reload,
    }


def at_ends(rewards: list[float], mask: list[list[int]]) -> list[list[float]]:
    """A row's reward at its last sampled token, where frameworks with rewards of tokens have it."""
    table = [[0.0] * len(row) for row in mask]
    for row, own, reward in zip(table, mask, rewards, strict=True):
        row[max(t for t, m in enumerate(own) if m)] = reward
    return table


def check_rows(inputs: Inputs) -> None:
    """Raise NotPosed for what frameworks of rows without grades or trajectories cannot be told."""
    if None in inputs["reward"]:
        raise NotPosed("each row has a reward: none can be without a grade")
    if len(set(inputs["trajectory"])) < len(inputs["trajectory"]):
        raise NotPosed("a row is a trajectory")


def accumulated(inputs: Inputs, one: Callable[[dict[str, Any]], Any]) -> Outputs:
    """Add up the gradients of a step's micro-batches. `one` gets a micro-batch's rows, tensors
    [rows, width] by name, and gives its loss as the framework's trainer would differentiate it."""
    import torch

    width = width_of(inputs)
    names = ("logprob", "old_logprob", "advantage", "mask", "reference", "entropy")
    held = [name for name in names if name in inputs]
    tables = {name: torch.tensor(padded(inputs[name], width)) for name in held}
    leaves = [name for name in ("logprob", "entropy") if name in tables]
    for name in leaves:
        tables[name].requires_grad_()
    loss = 0.0
    for rows in inputs["micro_batches"]:
        part = one({name: table[rows] for name, table in tables.items()})
        part.backward()
        loss += part.item()
    grads = {name: like(tables[name].grad.tolist(), inputs["mask"]) for name in leaves}
    found = {"loss": loss, "gradient": grads["logprob"]}
    return {**found, "entropy_gradient": grads["entropy"]} if "entropy" in grads else found


def tokens_of(inputs: Inputs) -> int:
    return sum(map(sum, inputs["mask"]))


def verl() -> Adapter:
    """verl's core algorithms, put together as its `ppo_loss` does it, with the totals of the batch
    that its engine gives them."""
    from importlib.metadata import version
    from types import SimpleNamespace

    import torch
    from verl.trainer.ppo import core_algos as core
    from verl.utils.reward_score.search_r1_like_qa_em import compute_score
    from verl.workers.config import ActorConfig

    modes = {
        "token_mean": "token-mean",
        "sequence_mean_token_mean": "seq-mean-token-mean",
        "constant": "seq-mean-token-sum-norm",
    }

    def loss(inputs: Inputs) -> Outputs:
        mode = modes[inputs["aggregation"]]
        name = "gspo" if inputs["ratio"] == "sequence" else "vanilla"
        name = "cispo" if inputs["objective"] == "cispo" else name
        config = ActorConfig(
            strategy="fsdp",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=inputs["clip_low"],
            clip_ratio_high=inputs["clip_high"],
            clip_ratio_c=inputs["dual_clip"] or 1e6,
        )
        totals = {
            "dp_size": 1,
            "batch_num_tokens": tokens_of(inputs),
            "global_batch_size": len(inputs["mask"]),
            "loss_scale_factor": inputs.get("length"),
        }
        config.global_batch_info.update(totals)

        def one(rows: dict[str, Any]) -> Any:
            mask = rows["mask"]
            given = {"old_log_prob": rows["old_logprob"], "log_prob": rows["logprob"]}
            given |= {"advantages": rows["advantage"], "response_mask": mask}
            found, _ = core.get_policy_loss_fn(name)(**given, loss_agg_mode=mode, config=config)
            if "entropy" in rows:
                term = core.agg_loss(rows["entropy"], mask, mode, **totals)
                found = found - inputs["entropy_coefficient"] * term
            if "reference" in rows:
                kl = core.kl_penalty(rows["logprob"], rows["reference"], "low_var_kl")
                term = core.agg_loss(kl, mask, mode, **totals)
                found = found + inputs["kl_coefficient"] * term
            return found

        return accumulated(inputs, one)

    def divergence(inputs: Inputs) -> Outputs:
        name = inputs["estimator"].replace(" with the gradient of k2", "+")
        logprob = torch.tensor(inputs["logprob"], requires_grad=True)
        value = core.kl_penalty(logprob, torch.tensor(inputs["reference"]), name)
        value.sum().backward()
        return {"value": value.tolist(), "gradient": logprob.grad.tolist()}

    def tensors(table: Any, mask: Any) -> tuple[Any, Any]:
        width = max(map(len, mask))
        return torch.tensor(padded(table, width)), torch.tensor(padded(mask, width))

    def advantage(inputs: Inputs) -> Outputs:
        check_rows(inputs)
        rewards, mask = tensors(at_ends(inputs["reward"], inputs["mask"]), inputs["mask"])
        index, name = np.array(inputs["group"]), inputs["estimator"]
        if name == "reinforce_pp":
            config = SimpleNamespace(gamma=1.0)
            found, _ = core.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, config)
        elif name == "rloo":
            found, _ = core.compute_rloo_outcome_advantage(rewards, mask, index)
        else:
            by_std = {"norm_adv_by_std_in_grpo": name == "grpo"}
            found, _ = core.compute_grpo_outcome_advantage(rewards, mask, index, **by_std)
        return {"advantage": masked(found.tolist(), inputs["mask"])}

    def returns(inputs: Inputs) -> Outputs:
        config = SimpleNamespace(gamma=inputs["discount"])
        given = tensors(inputs["reward"], inputs["mask"])
        _, found = core.compute_reinforce_plus_plus_outcome_advantage(*given, config)
        return {"returns": masked(found.tolist(), inputs["mask"])}

    def gae(inputs: Inputs) -> Outputs:
        if inputs["estimator"] != "token":
            raise NotPosed("no turn-level estimator")
        rewards, mask = tensors(inputs["reward"], inputs["mask"])
        values = torch.tensor(padded(inputs["value"], mask.shape[1]))
        numbers = inputs["discount"], inputs["decay"]
        _, found = core.compute_gae_advantage_return(rewards, values, mask, *numbers)
        # The advantages are whitened; the returns are these plus the values.
        return {"advantage": masked((found - values).tolist(), inputs["mask"])}

    def policy_gradient(inputs: Inputs) -> Outputs:
        def advantage(rewards: list[list[float]]) -> list[list[float]]:
            mask = [[1] * len(row) for row in rewards]
            group = np.zeros(len(rewards))
            found, _ = core.compute_rloo_outcome_advantage(*tensors(rewards, mask), group)
            return like(found.tolist(), mask)

        return expected_gradient(inputs, advantage)

    def grade(inputs: Inputs) -> Outputs:
        text = "".join(part["text"] for part in inputs["parts"])
        return {"reward": float(compute_score(text, {"target": inputs["answer"]}))}

    return {
        "version": version("verl"),
        "loss": loss,
        "divergence": divergence,
        "advantage": advantage,
        "returns": returns,
        "gae": gae,
        "policy_gradient": policy_gradient,
        "grade": grade,
    }


def skyrl() -> Adapter:
    """SkyRL's functions, put together as its trainer and worker do it: advantages are scaled over
    the batch, the terms beside them averaged over micro-batches."""
    import typing
    from importlib.metadata import version

    import typing_extensions

    # Before Python 3.12 pydantic refuses the standard one, which SkyRL takes.
    typing.__dict__["TypedDict"] = typing_extensions.TypedDict

    import torch
    from skyrl.backends.skyrl_train.utils import ppo_utils as core
    from skyrl.backends.skyrl_train.utils.torch_utils import masked_mean
    from skyrl.train.config import AlgorithmConfig

    reductions = {
        "token_mean": "token_mean",
        "sequence_mean_token_mean": "sequence_mean",
        "constant": "seq_mean_token_sum_norm",
    }

    def loss(inputs: Inputs) -> Outputs:
        width, batches = width_of(inputs), inputs["micro_batches"]
        scaled = core.apply_loss_reduction_to_advantages_minibatch(
            torch.tensor(padded(inputs["advantage"], width)),
            torch.tensor(padded(inputs["mask"], width)),
            reductions[inputs["aggregation"]],
            len(batches[0]),
            inputs.get("length", width),
        )
        config = AlgorithmConfig(
            policy_loss_type="dual_clip" if inputs["dual_clip"] else "regular",
            eps_clip_low=inputs["clip_low"],
            eps_clip_high=inputs["clip_high"],
            clip_ratio_c=inputs["dual_clip"] or 3.0,
            loss_reduction=reductions[inputs["aggregation"]],
        )
        config.cispo.cispo_eps_clip_low = inputs["clip_low"]
        config.cispo.cispo_eps_clip_high = inputs["clip_high"]
        function = core.gspo_policy_loss if inputs["ratio"] == "sequence" else core.ppo_policy_loss
        if inputs["objective"] == "cispo":
            function = core.compute_policy_loss_cispo

        def one(rows: dict[str, Any]) -> Any:
            mask = rows["mask"]
            given = rows["logprob"], rows["old_logprob"], rows["advantage"]
            found, _ = function(*given, config, loss_mask=mask)
            if "entropy" in rows:
                term = masked_mean(rows["entropy"], mask)
                found = found - inputs["entropy_coefficient"] * term / len(batches)
            if "reference" in rows:
                kl = core.compute_approx_kl(rows["logprob"], rows["reference"], mask, "k3")
                term = masked_mean(kl, mask, dim=-1).mean()
                found = found + inputs["kl_coefficient"] * term / len(batches)
            return found

        return accumulated(inputs | {"advantage": scaled.tolist()}, one)

    def divergence(inputs: Inputs) -> Outputs:
        if len(inputs["estimator"]) > 2:
            raise NotPosed("k1, k2 and k3 have their own gradients")
        logprob = torch.tensor(inputs["logprob"], requires_grad=True)
        reference = torch.tensor(inputs["reference"])
        value = core.compute_approx_kl(logprob, reference, None, inputs["estimator"])
        value.sum().backward()
        return {"value": value.tolist(), "gradient": logprob.grad.tolist()}

    def tensors(table: Any, mask: Any) -> tuple[Any, Any]:
        width = max(map(len, mask))
        return torch.tensor(padded(table, width)), torch.tensor(padded(mask, width))

    def advantage(inputs: Inputs) -> Outputs:
        check_rows(inputs)
        given = tensors(at_ends(inputs["reward"], inputs["mask"]), inputs["mask"])
        index, name = np.array(inputs["group"]), inputs["estimator"]
        if name == "reinforce_pp":
            found, _ = core.compute_reinforce_plus_plus_outcome_advantage(*given, gamma=1.0)
        elif name == "rloo":
            found, _ = core.compute_rloo_outcome_advantage(*given, index)
        else:
            by_std = {"grpo_norm_by_std": name == "grpo"}
            found, _ = core.compute_grpo_outcome_advantage(*given, index, **by_std)
        return {"advantage": masked(found.tolist(), inputs["mask"])}

    def returns(inputs: Inputs) -> Outputs:
        given = tensors(inputs["reward"], inputs["mask"])
        gamma = inputs["discount"]
        _, found = core.compute_reinforce_plus_plus_outcome_advantage(*given, gamma=gamma)
        return {"returns": masked(found.tolist(), inputs["mask"])}

    def gae(inputs: Inputs) -> Outputs:
        if inputs["estimator"] != "token":
            raise NotPosed("no turn-level estimator")
        rewards, mask = tensors(inputs["reward"], inputs["mask"])
        values = torch.tensor(padded(inputs["value"], mask.shape[1]))
        numbers = inputs["discount"], inputs["decay"]
        _, found = core.compute_gae_advantage_return(rewards, values, mask, *numbers)
        return {"advantage": masked((found - values).tolist(), inputs["mask"])}

    def policy_gradient(inputs: Inputs) -> Outputs:
        def advantage(rewards: list[list[float]]) -> list[list[float]]:
            mask = [[1] * len(row) for row in rewards]
            group = np.zeros(len(rewards))
            found, _ = core.compute_rloo_outcome_advantage(*tensors(rewards, mask), group)
            return like(found.tolist(), mask)

        return expected_gradient(inputs, advantage)

    return {
        "version": version("skyrl"),
        "loss": loss,
        "divergence": divergence,
        "advantage": advantage,
        "returns": returns,
        "gae": gae,
        "policy_gradient": policy_gradient,
    }


def openrlhf() -> Adapter:
    """OpenRLHF's losses and its maker of experiences, with the totals that its replay buffer gives.
    Packages that load flash-attn are left out, their modules not."""
    import importlib.util
    from importlib.metadata import version
    from types import ModuleType, SimpleNamespace

    def without_init(name: str) -> None:
        """Let a package's modules be imported, and not what its `__init__` imports."""
        spec = importlib.util.find_spec("openrlhf")
        assert spec is not None
        assert spec.submodule_search_locations
        package = ModuleType(name)
        place = Path(spec.submodule_search_locations[0]).parent
        package.__path__ = [str(place.joinpath(*name.split(".")))]
        sys.modules[name] = package

    without_init("openrlhf.models")
    # The maker of experiences names this class of workers, and needs none here.
    launcher = ModuleType("openrlhf.trainer.ray.launcher")
    launcher.__dict__["RayActorGroup"] = object
    sys.modules["openrlhf.trainer.ray.launcher"] = launcher
    without_init("openrlhf.trainer.ray")

    import torch
    from openrlhf.models.loss import PolicyLoss, aggregate_loss
    from openrlhf.models.utils import compute_approx_kl
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    def loss(inputs: Inputs) -> Outputs:
        if inputs["objective"] == "cispo" or inputs["aggregation"] == "constant":
            raise NotPosed("no such objective or aggregation")
        by_token = inputs["aggregation"] == "token_mean"
        function = PolicyLoss(
            clip_eps_low=inputs["clip_low"],
            clip_eps_high=inputs["clip_high"],
            dual_clip=inputs["dual_clip"],
            token_level_loss=by_token,
            policy_loss_type="gspo" if inputs["ratio"] == "sequence" else "ppo",
        )
        totals = {
            "batch_num_tokens": tokens_of(inputs),
            "global_batch_size": sum(any(row) for row in inputs["mask"]),
        }

        def one(rows: dict[str, Any]) -> Any:
            mask = rows["mask"]
            given = rows["logprob"], rows["old_logprob"], rows["advantage"]
            found = function(*given, action_mask=mask, **totals)[0]
            if "entropy" in rows:
                term = aggregate_loss(rows["entropy"], mask, by_token, **totals)
                found = found - inputs["entropy_coefficient"] * term
            if "reference" in rows:
                kl = compute_approx_kl(rows["logprob"], rows["reference"], kl_estimator="k3")
                term = aggregate_loss(kl, mask, by_token, **totals)
                found = found + inputs["kl_coefficient"] * term
            return found

        return accumulated(inputs, one)

    def divergence(inputs: Inputs) -> Outputs:
        name = inputs["estimator"]
        logprob = torch.tensor(inputs["logprob"], requires_grad=True)
        value = compute_approx_kl(
            logprob,
            torch.tensor(inputs["reference"]),
            kl_estimator=name[:2],
            unbiased_gradient=len(name) > 2,
        )
        value.sum().backward()
        return {"value": value.tolist(), "gradient": logprob.grad.tolist()}

    def tensors(table: Any, mask: Any) -> tuple[Any, Any]:
        width = max(map(len, mask))
        return torch.tensor(padded(table, width)), torch.tensor(padded(mask, width))

    def maker(estimator: str, size: int) -> Any:
        """Without the models that it would ask."""
        chosen = SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False)
        args = SimpleNamespace(
            algo=SimpleNamespace(advantage=chosen),
            rollout=SimpleNamespace(n_samples_per_prompt=size),
            reward=SimpleNamespace(clip_range=None),
        )
        made = object.__new__(RemoteExperienceMaker)
        made.strategy, made.args = SimpleNamespace(args=args), args
        made.advantage_estimator, made.kl_ctl = estimator, SimpleNamespace(value=0.0)
        return made

    names = {"grpo": "group_norm", "reinforce_pp": "reinforce"}

    def advantage(inputs: Inputs) -> Outputs:
        check_rows(inputs)
        size = inputs["group"].count(inputs["group"][0])
        if size < 2:
            raise NotPosed("its command refuses groups of one")
        _, mask = tensors(inputs["mask"], inputs["mask"])
        experience = SimpleNamespace(
            rewards=torch.tensor(inputs["reward"]),
            index=list(range(len(inputs["reward"]))),
            action_mask=mask,
            kl=torch.zeros_like(mask, dtype=torch.float32),
            info={},
        )
        name = names.get(inputs["estimator"], inputs["estimator"])
        maker(name, size).compute_advantages_and_returns([experience])
        return {"advantage": masked(experience.advantages.tolist(), inputs["mask"])}

    def returns(inputs: Inputs) -> Outputs:
        rewards, mask = tensors(inputs["reward"], inputs["mask"])
        found = maker("reinforce", 1).get_cumulative_returns(rewards, mask, inputs["discount"])
        return {"returns": masked(found.tolist(), inputs["mask"])}

    def gae(inputs: Inputs) -> Outputs:
        if inputs["estimator"] != "token":
            raise NotPosed("no turn-level estimator")
        rewards, mask = tensors(inputs["reward"], inputs["mask"])
        values = torch.tensor(padded(inputs["value"], mask.shape[1]))
        numbers = inputs["discount"], inputs["decay"]
        found, _ = maker("gae", 1).get_advantages_and_returns(values, rewards, mask, *numbers)
        return {"advantage": masked(found.tolist(), inputs["mask"])}

    return {
        "version": version("openrlhf"),
        "loss": loss,
        "divergence": divergence,
        "advantage": advantage,
        "returns": returns,
        "gae": gae,
    }


def tinker_cookbook() -> Adapter:
    """tinker-cookbook's side of a step: advantages of groups, and what of a trajectory is trained.
    The loss is computed by a service."""
    from importlib.metadata import version

    import tinker
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import compute_advantages, trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

    def trajectory(pairs: list[tuple[list[int], list[int]]], reward: float = 0.0) -> Any:
        made = []
        for number, (seen, said) in enumerate(pairs):
            ac = TokensWithLogprobs(tokens=said, maybe_logprobs=[-1.0] * len(said))
            last = number == len(pairs) - 1
            ob = tinker.ModelInput.from_ints(seen)
            made.append(Transition(ob=ob, ac=ac, reward=reward * last, episode_done=last))
        return Trajectory(transitions=made, final_ob=tinker.ModelInput.empty())

    def advantage(inputs: Inputs) -> Outputs:
        if inputs["estimator"] != "dr_grpo" and len(inputs["reward"]) > 1:
            raise NotPosed("rewards less their group's mean are its one estimator")
        if None in inputs["reward"]:
            raise NotPosed("each trajectory has a reward: none can be without a grade")
        members = [trajectory([([0], [1])], reward) for reward in inputs["reward"]]
        zeros = [0.0] * len(members)
        [found] = compute_advantages([TrajectoryGroup(members, zeros, [{} for _ in zeros])])
        return {"advantage": on_tokens(found.tolist(), inputs["mask"])}

    def episode(inputs: Inputs) -> Outputs:
        if any("forced" in turn for turn in inputs["turns"]):
            raise NotPosed("an action is what was sampled: nothing is forced")
        seen, pairs = list(inputs["prompt"]), []
        for turn in inputs["turns"]:
            seen = list(turn.get("context") or seen)
            pairs.append((list(seen), turn["sampled"]))
            seen += [*turn["sampled"], *turn.get("observed", [])]
        trained: list[int] = []
        for datum in trajectory_to_data(trajectory(pairs), 1.0, include_provenance=False):
            given = {k: v.to_torch().tolist() for k, v in datum.loss_fn_inputs.items()}
            pairs_of = zip(given["target_tokens"], given["mask"], strict=True)
            trained += [token for token, m in pairs_of if m]
        return {"trained": trained}

    return {"version": version("tinker-cookbook"), "advantage": advantage, "episode": episode}


def trl() -> Adapter:
    """One optimizer step of TRL's GRPOTrainer for each vector; its forward pass is a table, and its
    rollouts come from `rollout_func`, which TRL documents."""
    import tempfile
    from importlib.metadata import version
    from types import SimpleNamespace

    import torch
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer import grpo_trainer
    from trl.trainer.utils import add_fused_lm_head

    # A vector says which rows are together in a micro-batch; the trainer would draw them.
    grpo_trainer.shuffle_sequence_dict = lambda rows: rows

    class Posed(GRPOTrainer):
        """Has a row's number as its prompt, and looks up the row."""

        tables: dict[str, Any] = {}
        given: dict[str, Any] | None = None
        parts: list[float]
        advantages: Any = None

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            if self.given is not None:
                return dict(self.given)
            found = super()._generate_and_score_completions(inputs)
            self.advantages = found["advantages"]
            return found

        def _get_per_token_logps_and_entropies(
            self,
            model: Any,
            input_ids: Any,
            attention_mask: Any,
            logits_to_keep: int,
            *_: Any,
            **__: Any,
        ) -> Any:
            rows = input_ids[:, 0]
            tables = (self.tables[name][rows] for name in ("logprob", "entropy"))
            return *(table[:, :logits_to_keep] for table in tables), None

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            self.parts.append(loss.item())
            return loss

    def small_model(width: int = 8) -> Any:
        sizes = {"hidden_size": width, "intermediate_size": 8, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
        return LlamaForCausalLM(LlamaConfig(vocab_size=max(width, 130), **sizes, **heads))

    def stepped(
        inputs: Inputs, chosen: dict[str, Any], reward: Any, rollout: Any, given: Any
    ) -> Any:
        """The trainer after its only step."""
        batches, rows = inputs["micro_batches"], len(inputs["mask"])
        width = width_of(inputs)
        with tempfile.TemporaryDirectory() as place:
            config = GRPOConfig(
                output_dir=place,
                per_device_train_batch_size=len(batches[0]),
                gradient_accumulation_steps=len(batches),
                max_steps=1,
                learning_rate=1e-9,
                max_grad_norm=0.0,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                dataloader_pin_memory=False,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                shuffle_dataset=False,
                **chosen,
            )
            # The reference model is loaded from where the model came from.
            model = small_model()
            model.config._name_or_path = f"{place}/model"
            model.save_pretrained(f"{place}/model")
            trainer = Posed(
                model=model,
                reward_funcs=reward,
                args=config,
                train_dataset=Dataset.from_dict({"prompt": ["a"] * rows}),
                processing_class=letters(),
                rollout_func=rollout,
            )
            trainer.parts, trainer.given = [], given
            names = {"logprob": "logprob", "entropy": "entropy" if "entropy" in inputs else "mask"}
            trainer.tables = {
                name: torch.tensor(padded(inputs[own], width), requires_grad=True)
                for name, own in names.items()
            }
            trainer.train()
        return trainer

    kinds = {
        "token_mean": "dapo",
        "sequence_mean_token_mean": "grpo",
        "constant": "dr_grpo",
    }

    def loss(inputs: Inputs) -> Outputs:
        width, mask = width_of(inputs), inputs["mask"]
        # Its `delta` bounds the ratio from above, whatever the advantage; it is there for this one.
        bound = {"delta": inputs["dual_clip"]} if inputs["dual_clip"] else {}
        kind, high = kinds[inputs["aggregation"]], inputs["clip_high"]
        if inputs["objective"] == "cispo":
            kind, high = "cispo", 1 + high
        if "length" in inputs:
            bound["max_completion_length"] = inputs["length"]
        chosen = {
            "loss_type": kind,
            "epsilon": inputs["clip_low"],
            "epsilon_high": high,
            "importance_sampling_level": inputs["ratio"],
            "beta": inputs.get("kl_coefficient", 0.0),
            "entropy_coef": inputs.get("entropy_coefficient", 0.0),
            "use_bias_correction_kl": False,
            "num_generations": 2 if len(inputs["mask"]) % 2 == 0 else len(inputs["mask"]),
            **bound,
        }
        rows = range(len(mask))
        given = {
            "prompt_ids": torch.tensor([[i] for i in rows]),
            "prompt_mask": torch.ones(len(mask), 1, dtype=torch.long),
            "completion_ids": torch.ones(len(mask), width, dtype=torch.long),
            "completion_mask": torch.tensor(padded([[1] * len(row) for row in mask], width)).long(),
            "tool_mask": torch.tensor(padded(mask, width)).long(),
            "advantages": torch.tensor(padded(inputs["advantage"], width)),
            "old_per_token_logps": torch.tensor(padded(inputs["old_logprob"], width)),
            "num_items_in_batch": torch.tensor(float(tokens_of(inputs))),
        }
        if "reference" in inputs:
            given["ref_per_token_logps"] = torch.tensor(padded(inputs["reference"], width))
        trainer = stepped(
            inputs, chosen, lambda completions, **_: [0.0] * len(completions), None, given
        )
        found = {
            "loss": sum(trainer.parts),
            "gradient": like(trainer.tables["logprob"].grad.tolist(), mask),
        }
        if "entropy" in inputs:
            found["entropy_gradient"] = like(trainer.tables["entropy"].grad.tolist(), mask)
        return found

    def advantage(inputs: Inputs) -> Outputs:
        if inputs["estimator"] not in ("grpo", "dr_grpo"):
            raise NotPosed("not an estimator of this trainer")
        if len(set(inputs["trajectory"])) < len(inputs["trajectory"]):
            raise NotPosed("a row is a trajectory")
        size, rows = inputs["group"].count(inputs["group"][0]), len(inputs["mask"])
        if size < 2:
            raise NotPosed("it refuses groups of one")

        def rollout(prompts: Any, trainer: Any) -> Any:
            return {
                "prompt_ids": [[i] for i in range(rows)],
                "completion_ids": [[97] * len(row) for row in inputs["mask"]],
                "logprobs": [[-1.0] * len(row) for row in inputs["mask"]],
                "env_mask": inputs["mask"],
            }

        batch = inputs | {"micro_batches": [list(range(rows))]}
        batch["logprob"] = [[-1.0] * len(row) for row in inputs["mask"]]
        scale = "group" if inputs["estimator"] == "grpo" else "none"
        chosen = {"num_generations": size, "scale_rewards": scale}
        trainer = stepped(batch, chosen, lambda completions, **_: inputs["reward"], rollout, None)
        return {"advantage": on_tokens(trainer.advantages.tolist(), inputs["mask"])}

    def logprobs(inputs: Inputs) -> Outputs:
        if any(inputs["kept"]):
            raise NotPosed("it keeps no record of what top-p left")
        logits = torch.tensor([inputs["logits"]])
        model = small_model(logits.shape[-1])
        model.set_output_embeddings(torch.nn.Linear(*logits.shape[-1:] * 2, bias=False))
        model.get_output_embeddings().weight.data = torch.eye(logits.shape[-1])
        model.model.forward = lambda **_: SimpleNamespace(last_hidden_state=logits)
        add_fused_lm_head(model, temperature=inputs["temperature"])
        ids = torch.tensor([inputs["ids"]])
        labels = ids.masked_fill(torch.tensor([inputs["mask"]]) == 0, -100)
        found = model(input_ids=ids, labels=labels, fused_lm_head=True)
        return {"logprob": [0.0, *found.log_probs[0].tolist()]}

    return {"version": version("trl"), "loss": loss, "advantage": advantage, "logprobs": logprobs}


ADAPTERS: dict[str, Callable[[], Adapter]] = {
    "turnwise": turnwise,
    "trl": trl,
    "verl": verl,
    "skyrl": skyrl,
    "openrlhf": openrlhf,
    "tinker_cookbook": tinker_cookbook,
}


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
