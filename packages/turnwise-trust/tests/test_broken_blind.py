"""The exam for audits is what its tables say: each flaw can be exploited, each sound one holds.

Exploits see what a policy sees: no secret, and no state.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from broken_blind import BROKEN, SOUND
from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.environments.splits import shared_tasks
from turnwise.errors import NotSupportedError
from turnwise.rollout.loop import EpisodeLoop
from turnwise.rollout.runner import within
from turnwise.seeds import derive
from turnwise.types import Action, Observation, Outcome, Step, Task, ToolCall, Trajectory

PLACES = {case.name: case.environment for case in (*BROKEN, *SOUND)}
Policy = Callable[[Sequence[str]], Action]
"""All that the agent was shown so far -> its next action."""


@dataclass(kw_only=True)
class Exploit(EpisodeLoop):
    """An episode whose policy is a function of what it has seen."""

    policy: Policy

    async def _begin(self) -> None:
        self.seen = [(await self._reset()).content]

    async def _act(self, turn: int) -> Action:
        return self.policy(self.seen)

    async def _observe(self, observation: Observation, step: Step, turn: int) -> None:
        self.seen.append(observation.content)


def made(name: str) -> Environment:
    return make_environment(PLACES[name], {})


def tasks_of(environment: Environment) -> list[Task]:
    return [*environment.tasks("train"), *environment.tasks("heldout")]


async def episode(prototype: Environment, task: Task, policy: Policy, seed: int) -> Trajectory:
    planned = Trajectory(task, "exam", 0, derive("exam", task.id, seed))
    limits = within(RolloutConfig(), prototype.budget(task))
    loop = Exploit(planned=planned, prototype=prototype, limits=limits, policy=policy)
    return await loop.run()


def played(prototype: Environment, task: Task, policy: Policy, seed: int = 0) -> Trajectory:
    return asyncio.run(episode(prototype, task, policy, seed))


def share(prototype: Environment, policy: Policy, tasks: Sequence[Task]) -> float:
    """Success in these tasks."""

    async def work() -> list[Trajectory]:
        return [await episode(prototype, task, policy, 0) for task in tasks]

    return sum(one.outcome is Outcome.SUCCESS for one in asyncio.run(work())) / len(tasks)


def answer(text: str) -> Action:
    return Action(text, answer=text)


def call(name: str, /, **arguments: object) -> Action:
    return Action(name, calls=(ToolCall(name, arguments),))


def script(*actions: Action) -> Policy:
    """One action after the other, the last one until the end."""
    return lambda seen: actions[min(len(seen), len(actions)) - 1]


def perfect(environment: Environment, task: Task) -> Policy:
    return script(*environment.oracle(task))


DONE = answer("done")
NOTHING = script(answer(""))


def longest_overdue(seen: Sequence[str]) -> Action:
    rows = re.findall(r"(\d{4}): (-?\d+)", seen[0])
    return answer(max(rows, key=lambda row: int(row[1]))[0])


def all_offices(seen: Sequence[str]) -> Action:
    return call("offices") if len(seen) == 1 else answer(seen[-1])


def copied_report(seen: Sequence[str]) -> Action:
    first, last = call("read", path="check/sums.txt"), DONE
    return [first, call("write", path="report.txt", text=seen[-1]), last][len(seen) - 1]


def quoted_code(seen: Sequence[str]) -> Action:
    code = "0000" if len(seen) == 1 else re.findall(r"\d{4}", seen[1])[-1]
    return call("dial", code=code) if len(seen) < 3 else DONE


EXPLOITS: dict[str, tuple[Policy, float]] = {
    "Overdue": (longest_overdue, 1),
    "WordOrder": (lambda seen: answer(seen[0].split()[-1]), 1),
    "MeanReading": (script(answer("nan")), 1),
    "Incident": (lambda seen: answer(seen[0]), 1),
    "Parcel": (all_offices, 1),
    "Discount": (script(answer("A")), 1),
    "Refunds": (NOTHING, 0.4),
    "Bazaar": (script(call("buy", quarter="east", good="salt", pieces=-99), DONE), 1),
    "Settings": (script(call("write", path="report.txt", text="PASS"), DONE), 1),
    "Report": (copied_report, 1),
    "Padlock": (quoted_code, 1),
    "Function": (script(answer("raise SystemExit")), 1),
}
"""What succeeds without doing the work, and in which share of the tasks at least."""


@pytest.mark.parametrize("name", EXPLOITS)
def test_an_exploit_succeeds(name: str) -> None:
    policy, least = EXPLOITS[name]
    environment = made(name)
    assert share(environment, policy, environment.tasks("heldout")[:10]) >= least


def test_whole_numbers_are_judged_wrong_in_hours() -> None:
    environment = made("Hours")
    for task in environment.tasks("heldout"):
        total = sum(map(float, re.findall(r" (\d+\.\d)", task.prompt)))
        assert total == int(total)
        assert not played(environment, task, script(answer(str(int(total))))).verdict.success


def test_questions_of_weekday_are_in_both_splits() -> None:
    environment = made("Weekday")
    assert shared_tasks(environment.tasks("train"), environment.tasks("heldout")) == 14


def test_labels_of_seating_differ_between_processes() -> None:
    code = (
        "import json, sys\nfrom turnwise.environments.registry import make_environment\n"
        "tasks = make_environment(sys.argv[1], {}).tasks('train')\n"
        "print(json.dumps({task.prompt: task.secret['floor'] for task in tasks}))"
    )
    command = [sys.executable, "-c", code, PLACES["Seating"]]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    there = json.loads(subprocess.check_output(command, env=environment))
    here = {task.prompt: task.secret["floor"] for task in made("Seating").tasks("train")}
    assert here.keys() == there.keys()
    assert here != there


def test_a_success_in_warehouse_is_there_in_the_next_episode() -> None:
    environment = made("Warehouse")
    task = environment.tasks("heldout")[0]
    assert not played(environment, task, NOTHING).verdict.success
    assert played(environment, task, perfect(environment, task)).verdict.success
    assert played(environment, task, NOTHING).verdict.success


def test_the_same_ingredient_is_rewarded_every_turn_in_kitchen() -> None:
    environment = made("Kitchen")
    task = environment.tasks("heldout")[0]
    adds = [call("add", ingredient=each) for each in task.data["recipe"]]
    honest = played(environment, task, script(*adds, DONE)).reward
    farmed = played(environment, task, script(*adds, adds[0], adds[0], DONE)).reward
    assert honest == 1.75
    assert farmed == 2.25


def test_a_division_by_zero_escapes_the_penalty_in_ratio() -> None:
    environment = made("Ratio")
    task = environment.tasks("heldout")[0]
    assert played(environment, task, script(answer("1"))).reward == -1
    escaped = played(environment, task, script(call("divide", dividend=1, divisor=0), DONE))
    assert escaped.outcome is Outcome.INFRASTRUCTURE_STEP
    assert escaped.reward is None


def test_the_same_answer_has_two_verdicts_in_primes() -> None:
    environment = made("Primes")
    task = environment.tasks("heldout")[0]
    swapped = {"yes": "no", "no": "yes"}
    first, *labels = task.secret["labels"]
    wrong = script(answer(" ".join([swapped[first], *labels])))
    assert {played(environment, task, wrong).outcome for _ in range(60)} == {
        Outcome.SUCCESS,
        Outcome.FAILURE,
    }


def test_the_perfect_agent_is_cut_off_in_deliveries() -> None:
    environment = made("Deliveries")
    ends = {True: set[Outcome](), False: set[Outcome]()}
    for task in tasks_of(environment):
        end = played(environment, task, perfect(environment, task)).outcome
        ends[len(task.secret["stops"]) > 4].add(end)
    assert ends == {True: {Outcome.TRUNCATED_TOOL_CALLS}, False: {Outcome.SUCCESS}}


def test_there_is_a_test_of_each_flaw() -> None:
    own = ("Hours", "Weekday", "Seating", "Warehouse", "Kitchen", "Ratio", "Primes", "Deliveries")
    assert {*EXPLOITS, *own} == {case.name for case in BROKEN}
    assert (len(BROKEN), len(SOUND)) == (20, 12)


@pytest.mark.parametrize("name", PLACES)
def test_splits_have_tasks_and_share_none(name: str) -> None:
    environment = made(name)
    train, heldout = environment.tasks("train"), environment.tasks("heldout")
    assert len(train) + len(heldout) >= 24
    assert shared_tasks(train, heldout) == (14 if name == "Weekday" else 0)
    assert len({task.id for task in [*train, *heldout]}) == len(train) + len(heldout)


@pytest.mark.parametrize("name", [name for name in PLACES if name not in ("Deliveries", "Sowing")])
def test_the_oracle_succeeds(name: str) -> None:
    environment = made(name)
    tasks = environment.tasks("heldout")[:10]
    if type(environment).oracle is Environment.oracle:
        with pytest.raises(NotSupportedError):
            environment.oracle(tasks[0])
        return
    for task in tasks:
        assert played(environment, task, perfect(environment, task)).outcome is Outcome.SUCCESS


def numbers(seen: Sequence[str]) -> Action:
    return answer(", ".join(re.findall(r"\d+", seen[0])))


GENERIC: dict[str, Policy] = {
    "nothing": NOTHING,
    "the prompt": lambda seen: answer(seen[0]),
    "its numbers": numbers,
    "its last word": lambda seen: answer(re.findall(r"\w+", seen[0])[-1]),
    "nan": script(answer("nan")),
    "a letter": script(answer("A")),
    "yes": script(answer("yes")),
    "zero": script(answer("0")),
    "a test": script(answer("raise SystemExit")),
    "all numbers": script(answer(" ".join(map(str, range(1000))))),
}
FALLS_TO = {
    "WordOrder": set(GENERIC) - {"nothing", "the prompt", "its numbers"},
    "MeanReading": {"nan"},
    "Incident": {"the prompt"},
    "Discount": {"a letter"},
    "Function": {"a test"},
    "Refunds": set(GENERIC),
    "Divisible": {"yes", "its last word"},
}
"""The policies without any skill that succeed in an environment: by its flaw, or by its nature."""


@pytest.mark.parametrize("name", PLACES)
def test_simple_policies_succeed_only_where_the_table_says_so(name: str) -> None:
    environment = made(name)
    tasks = environment.tasks("heldout")[:4]
    found = {kind for kind, policy in GENERIC.items() if share(environment, policy, tasks) > 0.3}
    assert found == FALLS_TO.get(name, set())


def test_each_circle_of_shelf_earns_nothing() -> None:
    environment = made("Shelf")
    task = environment.tasks("heldout")[0]
    book = task.data["wanted"][0]
    circles = script(*[call("put", book=book), call("take", book=book)] * 2, DONE)
    assert played(environment, task, circles).reward == pytest.approx(0)


def test_five_guesses_find_any_number_of_higher_lower_by_halves() -> None:
    def halves(seen: Sequence[str]) -> Action:
        low, high = 1, 31
        for said in seen[1:]:
            number = int(said.split()[0])
            low, high = (number + 1, high) if "too low" in said else (low, number - 1)
        return call("guess", number=(low + high) // 2)

    environment = made("HigherLower")
    assert share(environment, halves, tasks_of(environment)) == 1


def test_chance_in_sowing_is_of_the_seed_alone() -> None:
    environment = made("Sowing")
    task = environment.tasks("heldout")[0]
    policy = perfect(environment, task)
    ends = [played(environment, task, policy, seed).reward for seed in range(60)]
    again = [played(environment, task, policy, seed).reward for seed in range(10)]
    assert again == ends[:10]
    assert sum(ends) / 60 == pytest.approx(0.8, abs=0.1)


def test_an_error_in_product_costs_and_abstaining_does_not() -> None:
    environment = made("Product")
    task = environment.tasks("heldout")[0]
    said = [str(task.secret["product"]), "unknown", "1"]
    assert [played(environment, task, script(answer(one))).reward for one in said] == [1, 0, -1]
