"""Self-critique beside a verifiable reward: what a rubric changes, whether success is lost by it,
and whether the critic stays right when it is refined on what the verifier knows.

    .venv/bin/python benchmarks/self_critique.py --seeds 0 1 2 --out runs/self_critique

After Kimi K2 (arXiv 2507.20534, section 3.2.2). A prompt shows two cards and asks for a field of
one; the verifier looks at the first word of the answer. The rubric wants the answer to be that word
alone, which the verifier does not see. The base is `tiny_search` after supervised learning on
scripted answers, right and wrong, plain and long, and on judgements of such answers, so that it can
judge at all. All arms begin with it. Runs that are finished are not repeated. Writes base.json,
summary.json, table.md and curves.png.
"""

import argparse
import asyncio
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.chat.recording import Recording
from turnwise.commands.comparison import finished_run
from turnwise.config import LearningConfig, ModelConfig, SftConfig
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.errors import InfrastructureError
from turnwise.evaluation.intervals import wilson
from turnwise.evaluation.paired import compare
from turnwise.evaluation.runs import read_played
from turnwise.judges.asking import Asker, Limits
from turnwise.judges.base import MalformedReplyError
from turnwise.judges.engine_model import EngineModel
from turnwise.judges.pairwise import Better, PairwiseJudge
from turnwise.judges.reply import read_reply
from turnwise.judges.rubric import Criterion
from turnwise.learning.sft import SupervisedLearner
from turnwise.models.load import load_model
from turnwise.monitor.echo_trap import averages
from turnwise.rewards.parts import RewardPart
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.seeds import derive
from turnwise.storage.checkpoint import latest
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Action, Observation, Outcome, Task, Trajectory, Turn, Verdict

VOCABULARY = """
    object file set read return string list error add class decode encode value this dist path
    given name log format close multi data call create final new current option widget time
    number item command run bytes module header xml async end sub which default method start
    iter write none open process find copy parse email message context test line direct mode
    key event server import base socket used tuple files app out values check type builtin url
    one text handle trace remove
"""
WORDS = VOCABULARY.split()
"""Words of one token of the model's."""
FILLERS = ("as you asked", "and it is right", "with all errors found", "for the given name")
"""What long answers go on with."""
RIGHT, PLAIN = 0.5, 0.35
"""Shares of scripted answers that are right, and that are one word."""
QUESTION = "Which of the two answers is right? Say `first`, `second`, or `tie`."
CRITERION = "The answer is one word alone."
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)
"""As much of a chat template as a judge needs."""
MAX_CHARACTERS, MAX_TOKENS, REPLY = 1000, 1000, 100
"""Of a record as it is quoted, of a trajectory, and of a reply."""
PAIRS = 2400
"""Pairs of scripted answers, for judgements, that the base is taught; and as many episodes."""
SHORT = 8
"""Judgements of short requests beside each: the cards and the two answers alone."""
BASE = SftConfig(steps=400, batch_size=60, learning_rate=2e-3, warmup_steps=10)
BASE_EVERY = 100
"""Updates between two measurements of how well the base judges."""
JUDGED = 200
"""Held-out pairs that it is measured on."""
STEPS, LEARNING_RATE = 20, 3e-4
WINDOW = 5
"""Steps over which curves are averaged."""
RECIPE = f'''
threads = 1
name = "self_critique"
[environment]
name = "{Path(__file__).resolve()}:Cards"
[scaffold]
name = "tags"
options = {{ instructions = "" }}
[engine]
max_sequences = 32
[rollout]
max_turns = 1
max_turn_tokens = 16
max_tokens = {MAX_TOKENS}
max_seconds = 300
[algorithm]
name = "rloo"
[learning]
learning_rate = {LEARNING_RATE}
share_prefixes = true
[train]
tasks_per_step = 6
group_size = 4
checkpoint_every = 10
[evaluation]
tasks = 400
temperature = 1.0
'''
JUDGE = (
    "judge.form=pairwise",
    "judge.model.kind=policy",
    f"judge.model.max_tokens={REPLY}",
    f"judge.question={QUESTION}",
    f"judge.criteria.plain={CRITERION}",
    f"judge.max_characters={MAX_CHARACTERS}",
    "judge.seconds=300",
    "judge.opponents=1",
    "rollout.max_ungraded_share=0.5",
)
CRITIQUE = (*JUDGE, "reward.parts.judge=0.5")
REFINED = ("judge.refinement.requests=6", "judge.refinement.replies=4")
ARMS: dict[str, tuple[str, ...]] = {
    "outcome": (),
    "outcome + critique": CRITIQUE,
    "outcome + critique, refined": (*CRITIQUE, *REFINED),
}


class Cards(Environment):
    """Two cards, and a question about a field of one. The verifier looks at the first word of the
    answer; whether it is the only one is reported as the part `plain`, and not judged."""

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("cards", "1", "0" * 64, parts={"plain": RewardPart(0, 1)})

    def tasks(self, split: Split) -> Sequence[Task]:
        """4,000 tasks for training and 2,000 held-out ones, each with words of its own draw."""
        places = range(4000) if split == "train" else range(4000, 6000)
        return [_task(number) for number in places]

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return verdict_on(trajectory.task, trajectory.answer)


def verdict_on(task: Task, answer: str | None) -> Verdict:
    """Whether the first word is right, and whether it is the only one."""
    words = (answer or "").split()
    right = words[:1] == [task.secret["value"]]
    return Verdict(float(right), right, {"plain": float(len(words) == 1)})


def _task(number: int) -> Task:
    stream = random.Random(derive(0, "cards", number))
    one, other, value, wrong = stream.sample(WORDS, 4)
    cards = [(one, value), (other, wrong)]
    stream.shuffle(cards)
    shown = " ".join(f"Class {name}. Module: {field}." for name, field in cards)
    return Task(f"{number}", f"{shown} Module of {one}", {"value": value, "wrong": wrong})


def scripted_answer(task: Task, stream: random.Random) -> str:
    """An answer that is right or wrong, plain or long."""
    value = task.secret["value" if stream.random() < RIGHT else "wrong"]
    return str(value if stream.random() < PLAIN else f"{value} {stream.choice(FILLERS)}")


Pair = tuple[Trajectory, Trajectory]


class Teacher:
    """Scripted episodes and judgements of them, in the tokens of training and judging."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.environment, self.tokenizer = Cards(), tokenizer
        self.scaffold = TagsScaffold(tokenizer, self.environment.tools(), instructions="")
        self.model = EngineModel(ScriptedEngine(lambda *_: []), tokenizer, lambda: "")
        asker = Asker(self.model, Limits(), Recording(None, "the judge"), 0)
        criteria = [Criterion("plain", CRITERION)]
        self.judge = PairwiseJudge(asker, criteria, None, QUESTION, MAX_CHARACTERS)

    def pairs(self, count: int, split: Split, seed: int) -> list[Pair]:
        """Pairs of scripted episodes, each of one task."""
        stream = random.Random(seed)
        tasks = stream.choices(self.environment.tasks(split), k=count)
        return [(self._episode(task, stream), self._episode(task, stream)) for task in tasks]

    def _episode(self, task: Task, stream: random.Random) -> Trajectory:
        written = self.scaffold.render(Action("", answer=scripted_answer(task, stream)))
        prompt = self.scaffold.begin(Observation(task.prompt, Source.USER))
        tokens = Tokens.empty().with_segments(prompt, turn=0)
        tokens = tokens.with_sampled(written, [0.0] * len(written), 0, turn=0)
        action = self.scaffold.parse(written)
        verdict = verdict_on(task, action.answer)
        outcome = Outcome.SUCCESS if verdict.success else Outcome.FAILURE
        return Trajectory(task, "scripted", 0, 0, tokens, (Turn(action),), outcome, verdict)

    def lessons(self, seed: int) -> list[Tokens]:
        """Episodes, judgements, and judgements of short requests, in turn."""
        found: list[Tokens] = []
        short = iter(self.pairs(SHORT * PAIRS, "train", derive(seed, "short")))
        for number, pair in enumerate(self.pairs(PAIRS, "train", seed)):
            found += [pair[0].tokens, self.judgement(pair, derive(seed, "mark", number))]
            found += [self.short_judgement(next(short)) for _ in range(SHORT)]
        return found

    def judgement(self, pair: Pair, seed: int) -> Tokens:
        """A request and the right reply; the seed is that of the mark."""
        request = self.judge.request(*pair)
        reply = {"nonce": request.nonce(seed), **_reply(pair)}
        return self._taught(self.model.segments(request.messages(seed)), reply)

    def short_judgement(self, pair: Pair) -> Tokens:
        """The cards and both answers, and the right reply without a mark."""
        one, other = pair
        text = f"{one.task.prompt}\n{one.answer}\n{other.answer}\n"
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._taught([Segment(ids, Source.USER)], _reply(pair))

    def _taught(self, segments: Sequence[Segment], reply: dict[str, str]) -> Tokens:
        ids = self.tokenizer(json.dumps(reply), add_special_tokens=False)["input_ids"]
        ids = [*ids, self.tokenizer.eos_token_id]
        prompt = Tokens.empty().with_segments(segments, turn=0)
        return prompt.with_sampled(ids, [0.0] * len(ids), 0, turn=0)


def _reply(pair: Pair) -> dict[str, str]:
    """The steps of the judgement, then its verdict: success first, then the rubric."""
    one, other = pair
    asked = one.task.prompt[one.task.prompt.index("Module of ") :]
    steps = f"{asked}: {one.task.secret['value']}; {_word(one)}; {_word(other)}"
    return {"reason": steps, "better": str(better(one, other))}


def _word(member: Trajectory) -> str:
    right, plain = _quality(member)
    first = (member.answer or "").split()[0]
    return f"{first} {'right' if right else 'wrong'} {'plain' if plain else 'long'}"


def _quality(member: Trajectory) -> tuple[bool, float]:
    assert member.verdict is not None  # it is graded
    return member.verdict.success, member.verdict.parts["plain"]


def better(one: Trajectory, other: Trajectory) -> Better:
    """The verdict that the base is taught."""
    first, second = _quality(one), _quality(other)
    return Better.TIE if first == second else Better.FIRST if first > second else Better.SECOND


def base(out: Path) -> Path:
    """The folder of the model that all arms begin with, made if it is not there."""
    folder = out / "base"
    if (out / "base.json").is_file():
        return folder
    torch.set_num_threads(1)
    model, tokenizer = load_model(ModelConfig(name="tiny_search"))
    tokenizer.chat_template = TEMPLATE
    teacher = Teacher(tokenizer)
    held_out = teacher.pairs(JUDGED, "heldout", seed=1)
    learning = LearningConfig(compute_dtype="bfloat16")
    learner = SupervisedLearner(model, teacher.lessons(seed=0), BASE, learning, seed=0)
    found = []
    while not learner.finished:
        loss = learner.step()["sft/loss"]
        if learner.steps_done % BASE_EVERY == 0:
            measured = judged(model, tokenizer, held_out)
            found.append({"updates": learner.steps_done, "loss": loss, **measured})
            print(found[-1], flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (out / "base.json").write_text(json.dumps(found, indent=1) + "\n")
    return folder


def judged(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Pair]
) -> dict[str, Any]:
    """How well a model judges pairs, greedily, each in one order."""
    teacher = Teacher(tokenizer)
    engine = EmbeddedEngine(
        model.eval(), tokenizer, max_sequences=16, max_tokens=MAX_TOKENS, deterministic=True
    )
    asked = EngineModel(engine, tokenizer, lambda: "", max_tokens=REPLY)

    async def verdict(pair: Pair) -> Better | None:
        request = teacher.judge.request(*pair)
        try:
            reply = await asked.complete(request.messages(0))
            return read_reply(reply.text, request.nonce(0), request.form)[0]
        except (MalformedReplyError, InfrastructureError):
            return None

    async def all_of_them() -> list[Better | None]:
        found = list(await asyncio.gather(*map(verdict, pairs)))
        await engine.stop()
        return found

    said = asyncio.run(all_of_them())
    both = list(zip(said, pairs, strict=True))
    known = [word is better(*pair) for word, pair in both if _differ(pair, 0)]
    rubric = [
        word is better(*pair) for word, pair in both if not _differ(pair, 0) and _differ(pair, 1)
    ]
    read = [word for word in said if word is not None]
    places = [(word is Better.FIRST) - (word is Better.SECOND) for word in read]
    return {
        "known": _share(known),
        "rubric": _share(rubric),
        "malformed": _share([word is None for word in said]),
        "position_bias": fmean(places) if places else None,
    }


def _differ(pair: Pair, what: int) -> bool:
    one, other = map(_quality, pair)
    return one[what] != other[what]


def _share(hits: Sequence[bool]) -> list[float]:
    """A share with its 95% interval, and of how many."""
    return [fmean(hits), *wilson(sum(hits), len(hits)), len(hits)]


def main() -> None:
    """Make what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=Path("runs/self_critique"))
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    out, overrides = arguments.out, arguments.overrides
    out.mkdir(parents=True, exist_ok=True)
    weights = base(out)
    begun = {"cold start": weights, "imitation": imitation(out, weights)}
    runs = {name: [evaluated(out, name, folder)] for name, folder in begun.items()}
    runs |= {arm: [] for arm in arguments.arms}
    for seed in arguments.seeds:
        for arm in arguments.arms:
            runs[arm].append(run(arm, seed, out, weights, overrides))
    rows = [measured(arm, folders, runs["outcome"]) for arm, folders in runs.items()]
    table = markdown(rows)
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "table.md").write_text(table)
    plot({arm: runs[arm] for arm in arguments.arms}, out / "curves.png")
    print(table)


def recipe(out: Path) -> str:
    """The file of the recipe that all runs have in common."""
    (out / "recipe.toml").write_text(RECIPE)
    return str(out / "recipe.toml")


def run(arm: str, seed: int, out: Path, weights: Path, overrides: Sequence[str]) -> Path:
    """The folder of an arm's run, trained if it is not there."""
    name = f"{arm.replace(' + ', '_').replace(', ', '_')}-{seed}"
    chosen = [f"model.name={weights}", f"seed={seed}", f"train.steps={STEPS}", *ARMS[arm]]
    return finished_run(out / name, recipe(out), [*chosen, *overrides])


def evaluated(out: Path, name: str, weights: Path) -> Path:
    """The folder of an evaluation without training."""
    chosen = [f"model.name={weights}", "train.steps=0", "evaluation.base=true"]
    return finished_run(out / name.replace(" ", "_"), recipe(out), chosen)


def imitation(out: Path, weights: Path) -> Path:
    """The base after as many more updates on its own lessons."""
    folder = out / "imitation_weights"
    if folder.is_dir():
        return folder
    model, tokenizer = load_model(ModelConfig(name=str(weights)))
    lessons = Teacher(tokenizer).lessons(seed=0)
    config = BASE.model_copy(update={"steps": STEPS, "learning_rate": LEARNING_RATE})
    learner = SupervisedLearner(model, lessons, config, LearningConfig(), seed=1)
    while not learner.finished:
        learner.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def measured(arm: str, folders: Sequence[Path], outcome: Sequence[Path]) -> dict[str, Any]:
    """The figures of an arm, one for each seed: held-out, and of its judge in the end."""
    evaluations = [_evaluation(folder) for folder in folders]
    summaries = [
        RunFolder.open(folder).evaluation(name)
        for folder, name in zip(folders, evaluations, strict=True)
    ]
    found: dict[str, Any] = {
        "arm": arm,
        "success": [[one[key] for key in ("success", "low", "high")] for one in summaries if one],
        "plain": [_plain(*one) for one in zip(folders, evaluations, strict=True)],
        "judge": [_judge_of(folder) for folder in folders],
        "judging": [_judging(folder) for folder in folders],
    }
    if arm in ARMS and arm != "outcome":
        pairs = zip(outcome, folders, strict=True)
        played = [
            (read_played(f"{one}@trained"), read_played(f"{two}@trained")) for one, two in pairs
        ]
        compared = [compare(*both) for both in played]
        found["difference"] = [[one.difference, *one.interval, one.detectable] for one in compared]
    return found


def _evaluation(folder: Path) -> str:
    names = RunFolder.open(folder).evaluations()
    return "trained" if "trained" in names else next(iter(names))


def _plain(folder: Path, evaluation: str) -> float:
    """The share of held-out answers that are one word."""
    rows = read_rows(folder / "trajectories" / f"evaluation-{evaluation}.parquet")
    return fmean(json.loads(row["parts"])["plain"] for row in rows if row["parts"] != "{}")


def _judge_of(folder: Path) -> dict[str, Any]:
    """How well the last weights judge scripted pairs; kept beside the run."""
    kept = folder / "judged.json"
    if not kept.is_file():
        name = RunFolder.open(folder).recipe().model.name
        last = latest(folder / "checkpoints")
        model, tokenizer = load_model(ModelConfig(name=str(last or name)))
        pairs = Teacher(tokenizer).pairs(JUDGED, "heldout", seed=1)
        kept.write_text(json.dumps(judged(model, tokenizer, pairs)))
    return dict(json.loads(kept.read_text()))


def _judging(folder: Path) -> dict[str, float]:
    """What the judge of the reward did in all steps: shares of its calls and comparisons."""
    lines = list(RunFolder.open(folder).lines("timing.jsonl"))
    last = lines[-1] if lines else {}
    if not last.get("judge/calls"):
        return {}
    return {
        "malformed": last["judge/malformed"] / last["judge/calls"],
        "disagreements": last["judge/disagreements"] / max(last["judge/comparisons"], 1.0),
        "position_bias": last.get("judge/position_bias", math.nan),
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each arm, all seeds in it."""
    head = (
        "| arm | success, held-out | less outcome alone | plain, held-out | judge in the end: "
        "which is right | which is plain, of two alike | malformed | position bias |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {row['arm']} | {'; '.join(map(_rate, row['success']))} | "
        + "; ".join(
            f"{100 * mean:+.1f} ({100 * low:+.1f} – {100 * high:+.1f})"
            for mean, low, high, _ in row.get("difference", [])
        )
        + f" | {'; '.join(f'{share:.0%}' for share in row['plain'])} | "
        + " | ".join(
            "; ".join(_rate(one[key]) for one in row["judge"])
            for key in ("known", "rubric", "malformed")
        )
        + " | "
        + "; ".join(
            "–" if one["position_bias"] is None else f"{one['position_bias']:+.2f}"
            for one in row["judge"]
        )
        + " |\n"
        for row in rows
    )


def _rate(one: Sequence[float]) -> str:
    share, low, high = one[:3]
    return f"{share:.0%} ({low:.0%} – {high:.0%})"


def plot(runs: dict[str, list[Path]], file: Path) -> None:
    """Success, plain answers and the critic's accuracy by step: a colour for each arm, a line for
    each seed, means of WINDOW steps."""
    titles = {
        "rollout/success": "success",
        "reward/parts/plain": "answers of one word",
        "judge/refinement_accuracy": "replies of the critic that are right",
    }
    figure = Figure(figsize=(10, 3), layout="constrained")
    for axes, (metric, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        for colour, (arm, folders) in enumerate(runs.items()):
            for number, folder in enumerate(folders):
                lines = RunFolder.open(folder).lines("metrics.jsonl")
                numbers = [line.get(metric, math.nan) for line in lines]
                smooth = averages(numbers, WINDOW)
                steps = range(WINDOW, WINDOW + len(smooth))
                axes.plot(steps, smooth, color=f"C{colour}", label=None if number else arm)
        axes.set(title=title, xlabel=f"step, means of {WINDOW}", ylim=(0, 1))
    figure.axes[1].legend(fontsize=7)
    figure.savefig(file, dpi=90)


if __name__ == "__main__":
    main()
