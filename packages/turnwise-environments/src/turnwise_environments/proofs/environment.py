"""The environment of proofs: show that a formula follows, in natural deduction, line by line.

The answer is the whole proof, and the kernel of `rewards/proofs.py` judges it. It may be begun
before, with the tool `check`, which is the same kernel: it says which line is wrong and why.
"""

import json
import random
from collections.abc import Sequence

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import gain_part, results_of, share, share_of_turn
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.progress import changes_of
from turnwise_environments.proofs.tasks import STANDARD, MadeTheorems, Result, results
from turnwise_environments.rewards.proofs import (
    RULES,
    Formula,
    ProofError,
    check,
    parse,
    rows_of,
    sound_lines,
)

PARTS = {
    "checked_lines": share("share of the answer's lines before the first wrong one"),
    "derived": share("share of the known proof's results that the answer derives"),
    "progress": gain_part("share of the known proof's results that are checked for the first time"),
    "errors": share_of_turn("1 where a checked proof has a wrong line"),
}
HOLDS = "The proof holds."
INSTRUCTIONS = """\
Write a proof in natural deduction, in lines or with semicolons: a number, a formula (~ not, & and,
| or, -> if, false), and premise, assume, or a rule with the numbers of the lines that it cites:
&i: A, B give A & B
&e: A & B gives A, or B
|i: A gives A | B, or B | A
|e: A | B, A assumed, C from it, B assumed, C from it give C
->i: A assumed, B from it give A -> B
->e: A -> B, A give B
~i: A assumed, false from it give ~A
~e: A, ~A give false
~~e: ~~A gives A
false-e: false gives any formula
copy: A gives A
The last line is what is to be proved, and stands on no assumption. For example, of ~p from p -> q
and ~q:
1. p -> q premise
2. ~q premise
3. p assume
4. q ->e 1 3
5. false ~e 4 2
6. ~p ~i 3 5"""


class Proofs(Environment):
    """One tool, `check`. Example: `Proofs(tasks=MadeTheorems(min_steps=2, max_steps=3))`."""

    facts = EnvironmentSpec("proofs", "1", parts=PARTS)
    _premises: Sequence[str] = ()
    _conclusion: str = ""

    def __init__(self, tasks: MadeTheorems = STANDARD) -> None:
        """Raises ConfigError for more theorems than there are."""
        self.task_set = tasks.load()

    async def reset(self, task: Task, seed: int) -> Observation:
        del seed
        self._premises, self._conclusion = task.data["premises"], task.data["conclusion"]
        return Observation(f"{INSTRUCTIONS}\n\n{task.prompt}", Source.USER)

    @tool
    async def check(self, proof: str) -> str:
        """Check the lines of a proof, finished or not."""
        return checked(proof, self._premises, self._conclusion)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        secret, answer = trajectory.task.secret, trajectory.answer or ""
        premises = [parse(one) for one in secret["premises"]]
        told = checked(answer, secret["premises"], secret["conclusion"])
        success = told == HOLDS
        lines, _ = sound_lines(answer, premises)
        parts = {
            "checked_lines": len(lines) / max(len(rows_of(answer)), 1),
            "derived": _share(secret["proof"], results(lines), premises),
        }
        return Verdict(float(success), success, parts, told, _turn_parts(trajectory, premises))

    def oracle(self, task: Task) -> Sequence[Action]:
        """A look at the known proof without its last line, and the whole."""
        proof = task.secret["proof"]
        begun = ToolCall("check", {"proof": proof.rpartition("\n")[0]})
        whole = ToolCall("check", {"proof": proof})
        return [
            Action("", "begin", (begun,)),
            Action("", "the rest", (whole,)),
            Action("", "that is it", answer=proof),
        ]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """The premises, and the conclusion by a random rule from random ones of them."""
        premises = task.data["premises"]
        rows = [f"{place}. {one} premise" for place, one in enumerate(premises, start=1)]
        name = stream.choice(sorted(RULES))
        cited = [stream.randint(1, max(len(rows), 1)) for _ in range(RULES[name].cites)]
        last = f"{len(rows) + 1}. {task.data['conclusion']} {name} {' '.join(map(str, cited))}"
        return [Action("", answer="\n".join([*rows, last]))]

    def snapshot(self) -> bytes:
        return json.dumps([self._premises, self._conclusion]).encode()

    def restore(self, state: bytes) -> None:
        self._premises, self._conclusion = json.loads(state)


def checked(proof: str, premises: Sequence[str], conclusion: str) -> str:
    """Let the kernel say of a proof that it holds, or what is wrong, or what is missing.

    >>> checked("1. p & q premise", ["p & q"], "q")
    '1 lines hold; the last line is not the conclusion: it is another one'
    """
    given = [parse(one) for one in premises]
    try:
        check(proof, given, parse(conclusion))
    except ProofError as problem:
        lines, error = sound_lines(proof, given)
        return error or f"{len(lines)} lines hold; {problem}"
    return HOLDS


def _turn_parts(trajectory: Trajectory, premises: Sequence[Formula]) -> dict[str, list[float]]:
    """The numbers of each turn's checks. What a rule held back was not checked."""
    secret = trajectory.task.secret
    found: list[Result] = []
    shares, errors = [], []
    for turn in trajectory.turns:
        failed = 0.0
        for one in results_of(turn, "check"):
            proof = one.call.arguments["proof"]
            if one.content == checked(proof, secret["premises"], secret["conclusion"]):
                lines, error = sound_lines(proof, premises)
                found += results(lines)
                failed = max(failed, float(bool(error)))
        shares.append(_share(secret["proof"], found, premises))
        errors.append(failed)
    return {"progress": changes_of(shares), "errors": errors}


def _share(known: str, found: Sequence[Result], premises: Sequence[Formula]) -> float:
    """The share of a known proof's results that were found, each on no more assumptions."""
    wanted = results(sound_lines(known, premises)[0])
    there = [
        any(formula == goal and assumed <= allowed for formula, assumed in found)
        for goal, allowed in wanted
    ]
    return sum(there) / len(there)
