"""The code environment: oracle and scores, what tests must not be fooled by, QuixBugs' format."""

import json
import math
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from environment_playing import answered, calling, judged, played, prototype, verdict_of, write
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError, InfrastructureError
from turnwise.types import Action, Task
from turnwise_environments.choosing import all_tasks
from turnwise_environments.code.environment import Code, program_of
from turnwise_environments.code.tasks import (
    ALL_SLOW,
    ENDS,
    STEPS,
    MadeFunctions,
    Pipeline,
    ProgramFile,
    inputs,
)
from turnwise_environments.measurement import random_script
from turnwise_environments.repair import programs

QUIXBUGS = Path(__file__).parents[5] / "shared" / "data" / "quixbugs" / "programs.jsonl"
RECORD: dict[str, Any] = {
    "name": "halves",
    "buggy": "def halves(n):\n    yield n\n",
    "correct": "def halves(n):\n    while n > 1:\n        n = n / 2\n        yield {1: (n,)}\n",
    "tests": [[[4], [{"1": [2]}, {"1": [1]}]], [[3], [{"1": [1.5]}, {"1": [0.75]}]], [[1], []]],
}


made = prototype("code", tasks={"count": 100})


def results(source: str, task: Task) -> list[Any]:
    """What a program of this environment's own making returns, here."""
    space: dict[str, Any] = {}
    exec(source, space)
    return [space[task.secret["name"]](*arguments) for arguments, *_ in task.secret["cases"]]


@pytest.mark.long
def test_every_solution_gives_what_is_expected_and_random_ones_do_not() -> None:
    made = Code()
    tasks = all_tasks(made)
    assert len(tasks) == 2000
    lucky = 0
    for task in tasks:
        expected = [entry for _, entry, _ in task.secret["cases"]]
        assert results(task.secret["solution"], task) == expected
        lucky += results(str(random_script(made, task)[0].answer), task) == expected
    assert lucky / 2000 == made.spec.reference_scores["random"]


def test_no_hidden_input_is_shown(made: Code) -> None:
    shown = [task.prompt for task in made.tasks("train")]
    assert not any(str(values) in text for values in inputs() if len(values) > 1 for text in shown)


def counted(values: list[int]) -> list[int]:
    """Each once, in the order of the first of each."""
    found: list[int] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def ranked(values: list[int]) -> list[int]:
    """Selection sort."""
    left, found = [*values], []
    while left:
        found.append(left.pop(min(range(len(left)), key=left.__getitem__)))
    return found


MEANINGS: dict[str, Callable[[list[int], int], Any]] = {
    "keep the even ones": lambda v, n: [x for x in v if x / 2 == x // 2],
    "keep the odd ones": lambda v, n: [x for x in v if x & 1],
    "keep those above {n}": lambda v, n: [x for x in v if not x <= n],
    "keep those below {n}": lambda v, n: [x for x in v if not x >= n],
    "drop those that {n} divides": lambda v, n: [x for x in v if n * round(x / n) != x],
    "add {n} to each": lambda v, n: [sum((x, n)) for x in v],
    "multiply each by {n}": lambda v, n: [sum([x] * n) for x in v],
    "square each": lambda v, n: [x**2 for x in v],
    "negate each": lambda v, n: [0 - x for x in v],
    "take each one's absolute value": lambda v, n: [max(x, -x) for x in v],
    "replace each by its remainder after division by {n}, which is 0 or more": lambda v, n: [
        next(rest for rest in range(n) if (x - rest) / n == (x - rest) // n) for x in v
    ],
    "sort them from small to large": lambda v, n: ranked(v),
    "reverse their order": lambda v, n: [*reversed(v)],
    "drop repetitions, keeping the first of each": lambda v, n: counted(v),
    "keep the first {n}": lambda v, n: [x for place, x in enumerate(v) if place < n],
    "keep the last {n}": lambda v, n: [x for place, x in enumerate(v) if place >= len(v) - n],
    "keep every second one, from the first on": lambda v, n: [
        x for place, x in enumerate(v) if place in range(0, len(v), 2)
    ],
    "replace each by the sum of all up to it": lambda v, n: [*accumulate(v)],
    "return the list": lambda v, n: v,
    "return their sum": lambda v, n: math.fsum(v),
    "return the largest, or 0 if there is none": lambda v, n: [0, *ranked(v)][-1],
    "return the smallest, or 0 if there is none": lambda v, n: [*ranked(v), 0][0],
    "return how many there are": lambda v, n: sum(1 for _ in v),
    "return how many different ones there are": lambda v, n: len(counted(v)),
    "return them as text, with - between them": lambda v, n: "".join(f"-{x}" for x in v)[1:],
    "return the largest minus the smallest, or 0 if there is none": lambda v, n: (
        ranked(v)[-1] - ranked(v)[0] if v else 0
    ),
}
"""Each step worked out in another way than its code does."""


def test_the_code_of_each_step_does_what_its_words_say() -> None:
    """A task's expected results come from the code that it states: here is the other opinion."""
    assert [step.words for step in (*STEPS, *ENDS)] == [*MEANINGS]
    for step in (*STEPS, *ENDS):
        low, high = step.numbers
        end = () if step in ENDS else ((ENDS[0], 0),)
        for number in range(low, high + 1):
            for values in inputs():
                expected = MEANINGS[step.words](values, number)
                assert step.function(values, number) == expected, (step.words, number, values)
                space: dict[str, Any] = {}
                exec(Pipeline(((step, number), *end)).code("f"), space)
                assert space["f"](values) == expected, (step.words, number, values)


WRONG = {  # with the share of the hidden calls that return
    "constant": ("def solve(values): return 0", 1.0),
    "right now and then": (
        "SOLUTION\nright = solve\ndef solve(values): return right(values) if values[1:] else None",
        1.0,
    ),
    "shown inputs only": ("def solve(values): return {0} if values == {1} else None", 1.0),
    "exit": ("import os, sys\nsys.exit(0)", 0.0),
    "no function": ("solve = 3", 0.0),
    "no program": ("def solve(values) return", 0.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_fail_and_parts_say_what_runs(made: Code, name: str) -> None:
    program, runs = WRONG[name]
    task = made.tasks("train")[0]
    verdict = judged(made, task, answered(program.replace("SOLUTION", task.secret["solution"])))
    assert (verdict.reward, verdict.success, verdict.parts["runs"]) == (0.0, False, runs)
    assert verdict.parts["passed"] <= runs


FAILURES = {
    "1 / 0": 1.0,
    "def x(:": 1.0,
    "print(1)\nraise ValueError('several\\nlines')": 1.0,
    "x = [0] * 10**10": 1.0,
    "import os; os.kill(os.getpid(), 11)": 1.0,
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    print('[error]', error)": 0.0,
    "print('a Traceback (most recent call last): is no line of its own')": 0.0,
    "print(sum([1, 2]))": 0.0,
}


def test_turns_whose_programs_fail_are_errors(made: Code) -> None:
    task = made.tasks("train")[0]
    tries = [calling("python", code=code) for code in FAILURES]
    both = Action("", calls=(*tries[0].calls, *tries[-1].calls))
    unparsed = Action("", error="no call")
    verdict = judged(made, task, *tries, both, unparsed, answered("def solve(values): return 0"))
    assert verdict.turn_parts == {"errors": [*FAILURES.values(), 1.0, 0.0, 0.0]}
    silent = judged(made, task, tries[0], answered(" "))
    assert silent.turn_parts == {"errors": [1.0, 0.0]}


def test_a_fenced_answer_and_the_tool(made: Code) -> None:
    task = made.tasks("train")[0]
    trying = calling("python", code="x = 1\nprint(x + 1)")
    fenced = f"Here it is:\n```python\n{task.secret['solution']}```"
    play = played(made, task, trying, trying, answered(fenced))
    assert [shown.strip() for shown in play.trajectory.observed[:2]] == ["2", "2"]
    assert verdict_of(play).parts == {"passed": 1.0, "runs": 1.0}
    assert program_of("```\na\n```\n```\nb\n```").startswith("```")
    assert program_of("```Python3\na\n```") == "a"


def test_results_of_records_are_compared_as_json(made: Code, tmp_path: Path) -> None:
    environment = Code(ProgramFile(write(tmp_path / "p.json", RECORD), heldout_share=0.0))
    environment.sandbox = made.sandbox
    (task,) = environment.tasks("train")
    assert judged(environment, task, *environment.oracle(task)).reward == 1.0
    assert judged(environment, task, answered(RECORD["buggy"])).reward == 0.0
    listed = "def halves(n): return [] if n <= 1 else [{'1': [n / 2]}, *halves(n / 2)]"
    assert judged(environment, task, answered(listed)).reward == 1.0
    endless = "def halves(n):\n    while True:\n        yield n\n"
    assert judged(environment, task, answered(endless)).reward == 0.0


BROKEN = {
    "entry 1: 'buggy' must be there": {**RECORD, "buggy": ""},
    "entry 1: 'tests' must be a list": {**RECORD, "tests": [[1, 2, 3]]},
    "entry 1: 'correct' is no Python": {**RECORD, "correct": "def"},
    "entry 1: 'correct' has no function 'other'": {**RECORD, "name": "other"},
    "entry 1: each of 'tests' must give 'epsilon', a number": {
        **RECORD,
        "correct": "def halves(n, epsilon=1): ...",
    },
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_records_are_named(tmp_path: Path, message: str) -> None:
    with pytest.raises(DataError) as error:
        Code(ProgramFile(write(tmp_path / "broken.json", BROKEN[message])))
    assert message in str(error.value)


@pytest.mark.parametrize("kind", [ProgramFile, programs.ProgramFile])
def test_records_that_are_left_out_are_told(tmp_path: Path, kind: type[ProgramFile]) -> None:
    path = write(tmp_path / "p.json", RECORD, {**RECORD, "buggy": ""})
    (told,) = kind(path).load().warnings
    assert "entry 2: 'buggy' must be there" in told


def test_a_program_with_slow_tests_alone_is_left_out(tmp_path: Path) -> None:
    slow = [[[6404180, []], 1]]
    source = "def knapsack(capacity, items): ..."
    record = {"name": "knapsack", "buggy": source, "correct": source, "tests": slow}
    for kind in (ProgramFile, programs.ProgramFile):
        found = kind(write(tmp_path / "p.json", RECORD, record)).load()
        assert sum(len(one) for one in found.tasks.values()) == 1
        assert found.warnings == ["1 programs were left out: " + ALL_SLOW]
        with pytest.raises(DataError, match=f"there are no programs in it.*{ALL_SLOW}"):
            kind(write(tmp_path / "p.json", record)).load()


def test_programs_have_time_of_the_processor(tmp_path: Path) -> None:
    """One that waits for the processor longer than its limit is right, one that computes is not."""
    file = ProgramFile(write(tmp_path / "p.json", RECORD), heldout_share=0.0)
    environment = Code(file, seconds=1.0)
    (task,) = environment.tasks("train")
    waiting = f"import time; time.sleep(1.5)\n{RECORD['correct']}"
    assert judged(environment, task, answered(waiting)).reward == 1.0
    computing = f"while True: pass\n{RECORD['correct']}"
    assert "cpu_limit" in judged(environment, task, answered(computing)).detail


def test_without_its_sandbox_there_is_no_verdict() -> None:
    """A service where nobody listens: the episode is ungraded, and not a failure of the agent."""
    service = {"kind": "sandbox_fusion", "url": "http://127.0.0.1:9"}
    environment = make_environment("code", {"tasks": {"count": 4}}, {}, service)
    task = environment.tasks("train")[0]
    with pytest.raises(InfrastructureError, match="sandbox_fusion"):
        judged(environment, task, *environment.oracle(task))


@pytest.mark.slow
def test_more_functions_than_there_are() -> None:
    with pytest.raises(ConfigError, match="lower count"):
        Code(MadeFunctions(400, max_steps=1))


@pytest.mark.slow
@pytest.mark.skipif(not QUIXBUGS.is_file(), reason="QuixBugs is not here")
def test_every_program_of_quixbugs(made: Code) -> None:
    environment = Code(ProgramFile(str(QUIXBUGS)))
    environment.sandbox = made.sandbox
    tasks = all_tasks(environment)
    programs = [json.loads(line) for line in QUIXBUGS.read_text().splitlines()]
    buggy = {program["name"]: program["buggy"] for program in programs}
    assert len(tasks) == len(buggy) == 21
    for task in tasks:
        assert judged(environment, task, *environment.oracle(task)).reward == 1.0, task.info
        assert judged(environment, task, answered(buggy[task.info["program"]])).reward == 0.0
