"""Self-critique beside a verifiable reward: what a rubric changes, whether success is lost by it,
and whether the critic stays right when it is refined on what the verifier knows.

    .venv/bin/python -m benchmarks.self_critique --seeds 0 1 2 --out runs/self_critique

After Kimi K2 (arXiv 2507.20534, section 3.2.2). A prompt asks for a word of a kind; the verifier
looks at the first word of the answer. The rubric wants the answer to be that word
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

from benchmarks.finished import finished_run
from turnwise.chat.recording import Recording
from turnwise.config import LearningConfig, ModelConfig, SftConfig
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.errors import InfrastructureError
from turnwise.evaluation.intervals import wilson
from turnwise.evaluation.kept import read_played
from turnwise.evaluation.paired import compare
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
from turnwise_judges.asking import Asker, Limits
from turnwise_judges.base import MalformedReplyError
from turnwise_judges.engine_model import EngineModel, Policy
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.prompt import escaped, read_reply

VOCABULARY = """
    object file set read return string list error add decode encode this dist path
    given name log format close multi data call create final new current option widget time
    number item command run bytes module header xml async end sub which default method start
    iter write none open process find copy parse email message context test line direct mode
    key event server import base socket used tuple files app out values check type builtin url
    one text handle trace remove
"""
WORDS = VOCABULARY.split()
"""Words of one token of the model's."""
KINDS = {"class": WORDS[::2], "value": WORDS[1::2]}
"""Two kinds of words, which the base is taught, and nothing else tells."""
KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
FILLERS = ("as you asked", "and it is right", "with all errors found", "for the given name")
"""What long answers go on with."""
RIGHT, JUDGED_RIGHT, PLAIN = 0.7, 0.5, 0.35
"""Shares of scripted answers that are right, of those to be given and those to be judged; and that
are one word."""
QUESTION = "Is the answer right? One that is right, and one word alone, is the best."
"""The rubric, of which the verifier sees the first half."""
SCORES = {(True, True): 1.0, (True, False): 0.7, (False, True): 0.3, (False, False): 0.0}
"""What the base is taught of right and plain answers: success first, then the rubric."""
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)
"""As much of a chat template as a judge needs."""
MAX_CHARACTERS, MAX_TOKENS, REPLY = 600, 700, 90
"""Of a record as it is quoted, of a trajectory, and of a reply."""
LESSONS = 1800
"""Scripted answers that the base is taught to judge, and as many that it is taught to give."""
SHORT = 4
"""Judgements of short requests beside each: the task and the answer alone."""
BASE = SftConfig(steps=300, batch_size=36, learning_rate=2e-3, warmup_steps=10)
BASE_EVERY = 100
"""Updates between two measurements of how well the base judges."""
JUDGED = 120
"""Held-out answers that it is measured on."""
STEPS, LEARNING_RATE = 36, 1e-3
WINDOW = 5
"""Steps over which curves are averaged."""
RECIPE = f'''
threads = 1
name = "self_critique"
[environment]
name = "{Path(__file__).resolve()}:Kinds"
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
tasks = 300
temperature = 1.0
'''
CRITIQUE = (
    "judge.form=pointwise",
    "judge.low=0",
    "judge.high=1",
    "judge.model.kind=policy",
    f"judge.model.max_tokens={REPLY}",
    f"judge.question={QUESTION}",
    f"judge.max_characters={MAX_CHARACTERS}",
    "judge.seconds=300",
    "rollout.max_ungraded_share=0.5",
    "reward.parts.judge=0.5",
)
REFINED = ("judge.refinement.requests=8", "judge.refinement.replies=4")
ARMS: dict[str, tuple[str, ...]] = {
    "outcome": (),
    "outcome + critique": CRITIQUE,
    "outcome + critique, refined": (*CRITIQUE, *REFINED),
}


class Kinds(Environment):
    """Name a word of a kind. The verifier looks at the first word of the answer; whether it is the
    only one is reported as the part `plain`, and not judged."""

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("kinds", "1", "0" * 64, parts={"plain": RewardPart(0, 1)})

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks for training and held-out ones; what a word is asked for tells them apart."""
        asked = [(one, other, kind) for one in WORDS for other in WORDS for kind in KINDS]
        random.Random(0).shuffle(asked)
        chosen = asked[:4000] if split == "train" else asked[4000:6000]
        return [
            Task(f"{one} {other} {kind}", f"For {one} {other}: name a {kind}", {"kind": kind})
            for one, other, kind in chosen
        ]

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return verdict_on(trajectory.task, trajectory.answer)


def verdict_on(task: Task, answer: str | None) -> Verdict:
    """Whether the first word is of the kind, and whether it is the only one."""
    words = (answer or "").split()
    right = bool(words) and KIND_OF.get(words[0]) == task.secret["kind"]
    return Verdict(float(right), right, {"plain": float(len(words) == 1)})


def scripted_answer(task: Task, stream: random.Random, share: float) -> str:
    """An answer that is right or wrong, plain or long; `share` is that of right ones."""
    asked = task.secret["kind"]
    other = next(kind for kind in KINDS if kind != asked)
    word = stream.choice(KINDS[asked if stream.random() < share else other])
    return word if stream.random() < PLAIN else f"{word} {stream.choice(FILLERS)}"


class Teacher:
    """Scripted episodes and judgements of them, in the tokens of training and judging."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.environment, self.tokenizer = Kinds(), tokenizer
        self.scaffold = TagsScaffold(tokenizer, self.environment.tools(), instructions="")
        self.model = EngineModel(Policy(ScriptedEngine(lambda *_: []), tokenizer, lambda: ""))
        asker = Asker(self.model, Limits(), Recording(None, "the judge"), 0)
        self.judge = PointwiseJudge(asker, 0.0, 1.0, QUESTION, MAX_CHARACTERS)

    def episodes(
        self, count: int, split: Split, seed: int, share: float = JUDGED_RIGHT
    ) -> list[Trajectory]:
        """Scripted episodes of tasks that are drawn at random, with a share of right ones."""
        stream = random.Random(seed)
        tasks = stream.choices(self.environment.tasks(split), k=count)
        return [self._episode(task, stream, share) for task in tasks]

    def _episode(self, task: Task, stream: random.Random, share: float) -> Trajectory:
        written = self.scaffold.render(Action("", answer=scripted_answer(task, stream, share)))
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
        given = self.episodes(LESSONS, "train", derive(seed, "given"), RIGHT)
        asked = self.episodes(LESSONS, "train", derive(seed, "judged"))
        short = iter(self.episodes(SHORT * LESSONS, "train", derive(seed, "short")))
        for number, (own, other) in enumerate(zip(given, asked, strict=True)):
            found += [own.tokens, self.judgement(other, derive(seed, "mark", number))]
            found += [self.short_judgement(next(short)) for _ in range(SHORT)]
        return found

    def judgement(self, episode: Trajectory, seed: int) -> Tokens:
        """A request and the right reply; the seed is that of the mark."""
        request = self.judge.request(episode)
        reply = {"nonce": request.nonce(seed), **_reply(episode)}
        return self._taught(self.model.segments(request.messages(seed)), reply)

    def short_judgement(self, episode: Trajectory) -> Tokens:
        """The task and the answer, and the right reply without a mark."""
        text = f"{episode.task.prompt}\n{escaped(episode.turns[0].action.text)}\n"
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._taught([Segment(ids, Source.USER)], _reply(episode))

    def _taught(self, segments: Sequence[Segment], reply: dict[str, Any]) -> Tokens:
        ids = self.tokenizer(json.dumps(reply), add_special_tokens=False)["input_ids"]
        ids = [*ids, self.tokenizer.eos_token_id]
        prompt = Tokens.empty().with_segments(segments, turn=0)
        return prompt.with_sampled(ids, [0.0] * len(ids), 0, turn=0)


def _reply(episode: Trajectory) -> dict[str, Any]:
    """The steps of the judgement, then its score."""
    assert episode.verdict is not None  # it is graded
    right, plain = _quality(episode)
    word = (episode.answer or "").split()[0]
    found = f"{'right' if right else 'wrong'} {'plain' if plain else 'long'}"
    steps = f"answer> {word} {KIND_OF[word]}; name a {episode.task.secret['kind']}; {found}"
    return {"reason": steps, "score": SCORES[right, plain]}


def _quality(member: Trajectory) -> tuple[bool, bool]:
    """Whether it is right, and whether it is one word."""
    assert member.verdict is not None  # it is graded
    return member.verdict.success, member.verdict.parts["plain"] == 1.0


def base(out: Path) -> Path:
    """The folder of the model that all arms begin with, made if it is not there."""
    folder = out / "base"
    if (out / "base.json").is_file():
        return folder
    torch.set_num_threads(1)
    model, tokenizer = load_model(ModelConfig(name="tiny_search"))
    tokenizer.chat_template = TEMPLATE
    teacher = Teacher(tokenizer)
    held_out = teacher.episodes(JUDGED, "heldout", seed=1)
    learning = LearningConfig()
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
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, episodes: Sequence[Trajectory]
) -> dict[str, Any]:
    """How well a model judges episodes, greedily: shares of those that it scores on the right side
    of the middle, of the right ones that it scores as it was taught, of malformed replies, and of
    scores above the middle."""
    judge = Teacher(tokenizer).judge
    engine = EmbeddedEngine(
        model.eval(), tokenizer, max_sequences=16, max_tokens=MAX_TOKENS, deterministic=True
    )
    asked = EngineModel(Policy(engine, tokenizer, lambda: ""), max_tokens=REPLY)

    async def score(episode: Trajectory) -> float | None:
        request = judge.request(episode)
        try:
            reply = await asked.complete(request.messages(0))
            return read_reply(reply.text, request.nonce(0), request.form)[0]
        except (MalformedReplyError, InfrastructureError):
            return None

    async def all_of_them() -> list[float | None]:
        found = list(await asyncio.gather(*map(score, episodes)))
        await engine.stop()
        return found

    scores = asyncio.run(all_of_them())
    both = [(value, *_quality(one)) for value, one in zip(scores, episodes, strict=True)]
    read = [value for value in scores if value is not None]
    return {
        "wrong": _share(
            [value is not None and value <= 0.5 for value, right, _ in both if not right]
        ),
        "right": _share([value is not None and value > 0.5 for value, right, _ in both if right]),
        "rubric": _share([value == SCORES[right, plain] for value, right, plain in both if right]),
        "malformed": _share([value is None for value in scores]),
        "high": fmean(value > 0.5 for value in read) if read else None,
    }


def _share(hits: Sequence[bool]) -> list[float]:
    """A share with its 95% interval, and of how many."""
    return [fmean(hits), *wilson(sum(hits), len(hits)), len(hits)]


def main() -> None:
    """Make what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=Path("runs/self_critique"))
    parser.add_argument("--base", type=Path, help="a model that can judge; made if not given")
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    out, overrides = arguments.out, arguments.overrides
    out.mkdir(parents=True, exist_ok=True)
    weights = arguments.base or base(out)
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
        "judging": [_malformed(folder) for folder in folders],
    }
    if arm in ARMS and arm != "outcome":
        pairs = zip(outcome, folders, strict=True)
        played = [
            (read_played(f"{one}@trained"), read_played(f"{two}@trained")) for one, two in pairs
        ]
        compared = [compare(*both) for both in played]
        found["difference"] = [
            [one.difference, one.low, one.high, one.detectable] for one in compared
        ]
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
        episodes = Teacher(tokenizer).episodes(JUDGED, "heldout", seed=1)
        kept.write_text(json.dumps(judged(model, tokenizer, episodes)))
    return dict(json.loads(kept.read_text()))


def _malformed(folder: Path) -> float | None:
    """The share of malformed replies to the judge of the reward, of all steps; None without one."""
    lines = list(RunFolder.open(folder).lines("timing.jsonl"))
    calls = lines[-1].get("judge/calls") if lines else None
    return lines[-1]["judge/malformed"] / calls if calls else None


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each arm, all seeds in it."""
    head = (
        "| arm | success, held-out | less outcome alone | detectable | one word, held-out | judge "
        "in the end: right ones found | wrong ones found | scored as taught, of right ones | "
        "malformed | malformed in training |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join("| " + " | ".join(_cells(row)) + " |\n" for row in rows)


def _cells(row: dict[str, Any]) -> list[str]:
    differences = row.get("difference", [])
    return [
        row["arm"],
        "; ".join(map(_rate, row["success"])),
        "; ".join(
            f"{100 * mean:+.1f} ({100 * low:+.1f} – {100 * high:+.1f})"
            for mean, low, high, _ in differences
        ),
        "; ".join(f"{100 * detectable:.1f}" for *_, detectable in differences),
        "; ".join(f"{share:.0%}" for share in row["plain"]),
        *(
            "; ".join(_rate(one[key]) for one in row["judge"])
            for key in ("right", "wrong", "rubric", "malformed")
        ),
        "; ".join("–" if share is None else f"{share:.0%}" for share in row["judging"]),
    ]


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
