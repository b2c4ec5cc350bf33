"""The mathematics environment: made problems, GSM8K's files, and what an agent can do wrong."""

import asyncio
import itertools
import json
import operator
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from environment_playing import answered, calling, judged, played, prototype, reward, write
from turnwise.errors import ConfigError, DataError
from turnwise.types import Action, Step, Task, Trajectory, Turn
from turnwise_environments.choosing import all_tasks
from turnwise_environments.mathematics.environment import Mathematics
from turnwise_environments.mathematics.tasks import MadeProblems, QuestionFile, Sums, numbers_in
from turnwise_environments.measurement import random_script
from turnwise_environments.rewards.numeric import matches
from turnwise_environments.tools.calculator import calculate

GSM8K = Path(__file__).parents[5] / "shared" / "data" / "gsm8k" / "train.jsonl"
QUESTION = {
    "question": "Ann has 3 hats and buys 4 more. How many?",
    "answer": "3+4=<<3+4=7>>7\n#### 7",
}


made = prototype("mathematics", tasks={"count": 300})
python = prototype(
    "mathematics", tasks={"digits": 1, "terms": 3, "count": 20}, interpreter="python"
)


def test_each_step_uses_the_result_before_it_and_python_agrees(made: Mathematics) -> None:
    for task in made.tasks("heldout"):
        value = None
        for step in task.secret["solution"]:
            assert value is None or str(value) in re.findall(r"\d+", step)
            value = eval(re.sub(r"(\d+)", r"Fraction(\1)", step), {"Fraction": Fraction})
        assert value == Fraction(task.secret["answer"])


@pytest.mark.slow
def test_trivial_policies() -> None:
    """No answer, any number of the question and all numbers at once earn nothing, on every task;
    the random policy's success is what the environment says."""
    made = Mathematics()
    tasks = all_tasks(made)
    for task in tasks:
        secret, numbers = task.secret, numbers_in(task.prompt)
        guesses = [None, "", task.prompt, " ".join(map(str, range(200))), secret["solution"][-1]]
        for guess in [*guesses, *map(str, numbers)]:
            assert not matches(guess, secret["answer"], secret["units"]), task
    assert made.spec.reference_scores["noop"] == 0.0
    random = sum(random_success(task) for task in tasks) / len(tasks)
    assert float(random) == pytest.approx(made.spec.reference_scores["random"], abs=1e-4)
    assert reward(made, tasks[0]) == 0.0


def random_success(task: Task) -> Fraction:
    """Share of (two numbers of the question in an order, one of + - * /) that give the answer."""
    answer = Fraction(task.secret["answer"])
    pairs = list(itertools.permutations(numbers_in(task.prompt), 2))
    operations = (operator.add, operator.sub, operator.mul)
    hits = sum(operation(a, b) == answer for a, b in pairs for operation in operations)
    hits += sum(a == answer * b for a, b in pairs)
    return Fraction(hits, 4 * len(pairs)) if pairs else Fraction(0)


def test_the_last_answer_of_the_models_own_counts(made: Mathematics) -> None:
    task = made.tasks("train")[0]
    *calls, last = made.oracle(task)
    for answers, worth in (((answered("0"), last), 1.0), ((last, answered("0")), 0.0)):
        both = [Turn(answer, Step(done=True)) for answer in answers]
        trajectory = Trajectory(task, "g", 0, 0, turns=both)
        assert asyncio.run(made.verify(trajectory)).reward == worth
    assert reward(made, task, *calls) == 0.0
    assert reward(made, task, *calls, answered(task.prompt)) == 0.0
    said = Action(f"The answer is {last.answer}", error="no tags")
    assert reward(made, task, *calls, said) == 0.0
    assert str(task.secret["answer"]) not in repr(task.public())


def test_fewer_problems_are_the_first_ones_and_the_ablation_has_no_calculator(
    made: Mathematics,
) -> None:
    assert Mathematics(MadeProblems(30)).tasks("train") == made.tasks("train")[:30]
    ablation = made.ablations()["no_calculator"]
    assert [tool.schema for tool in ablation.tools()] == [tool.schema for tool in made.tools()]
    task = ablation.tasks("train")[0]
    trajectory = played(ablation, task, *made.oracle(task)).trajectory
    assert set(trajectory.observed) == {"Error: the calculator does not work now"}


def test_own_questions(tmp_path: Path) -> None:
    plain = {"question": "What is a third of 1?", "answer": "1/3"}
    again = {"question": "ann has 3 hats and  buys 4 more. how many?", "answer": "7.0"}
    environment = Mathematics(QuestionFile(write(tmp_path / "q.jsonl", QUESTION, plain, again)))
    tasks = {task.secret["answer"]: task for task in all_tasks(environment)}
    assert set(tasks) == {"7", "1/3"}
    assert environment.spec.reference_scores == {"noop": 0.0}
    assert reward(environment, tasks["7"], *environment.oracle(tasks["7"])) == 1.0
    assert reward(environment, tasks["1/3"], *environment.oracle(tasks["1/3"])) == 1.0
    assert environment.oracle(tasks["7"])[0].calls[0].arguments == {"expression": "3+4"}
    whole = Mathematics(QuestionFile(str(tmp_path / "q.jsonl"), heldout_share=1.0))
    assert (len(whole.tasks("train")), len(whole.tasks("heldout"))) == (0, 2)


BROKEN: dict[str, list[Any]] = {
    "line 1: 'answer' must be there": [{"question": "Why?", "answer": None}],
    "line 1: 'answer' must be a number after ####, not 'seven'": [
        {"question": "Why?", "answer": "so #### seven"}
    ],
    "1 questions were left out: the answer is no number": [{"question": "Why?", "answer": "so"}],
    "there are no questions": [],
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_files_are_named_by_line(tmp_path: Path, message: str) -> None:
    path = write(tmp_path / "broken.jsonl", *BROKEN[message])
    with pytest.raises(DataError) as error:
        Mathematics(QuestionFile(path))
    assert message in str(error.value)
    assert path in str(error.value)


def test_broken_records_are_left_out_and_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    rows = [QUESTION, {"answer": "7"}, QUESTION | {"answer": "#### 8"}, [1], {"question": "?"}]
    verl = {
        "prompt": [{"role": "user", "content": "1 + 1?"}],
        "reward_model": {"ground_truth": "2"},
    }
    half = {"question": "\ud83d and 3?", "answer": "3"}
    sound = [{"question": "2 + 2?", "answer": 4}, half, verl]
    rows[1] = {**verl, "extra_info": "test"}
    lines = [*map(json.dumps, rows), "{broken", *map(json.dumps, sound)]
    path.write_text("\n".join(lines))
    environment = Mathematics(QuestionFile(str(path)))
    assert {task.secret["answer"] for task in all_tasks(environment)} == {"7", "4", "3", "2"}
    told = environment.task_set.warnings
    assert [re.search(r"line \d: .{9}", one).group() for one in told] == [
        "line 2: 'question",
        "line 3: the quest",
        "line 4: expected ",
        "line 5: 'answer' ",
        "line 6: broken JS",
    ]


@pytest.mark.long
@pytest.mark.skipif(not GSM8K.is_file(), reason="the real questions are not here")
def test_gsm8k_agrees_with_the_calculator_and_the_verifier() -> None:
    """Annotations `<<sum=result>>` of the gold solutions, and no result that is off by one; of each
    fifth question."""
    agreed = total = 0
    for line in GSM8K.read_text().splitlines()[::5]:
        for expression, result in re.findall(r"<<(.*?)=(.*?)>>", line):
            total += 1
            shown = calculate(expression).partition(" (")[0]
            agreed += matches(shown, result) and not matches(shown, f"{result}1")
    assert total > 4000
    assert agreed == total
    environment = Mathematics(QuestionFile(str(GSM8K)))
    tasks = all_tasks(environment)
    assert len(tasks) == 7473
    for task in tasks[::5]:
        answer = task.secret["answer"]
        assert matches(environment.oracle(task)[-1].answer, answer)
        assert matches(rf"\(\boxed{{{answer}}}\).", answer)


def test_a_number_that_python_does_not_read_is_only_text(tmp_path: Path) -> None:
    question = f"What is 1 + {'9' * 5000} - 2?"
    assert numbers_in(question) == [1, 2]
    file = write(tmp_path / "q.jsonl", {"question": question, "answer": "Said.\n#### 7"})
    made = Mathematics(QuestionFile(file, heldout_share=0.0))
    (task,) = made.tasks("train")
    looked = calling("calculator", expression="1 + 2")
    assert judged(made, task, looked, answered("7")).reward == 1.0
    assert judged(made, task, *random_script(made, task)).reward == 0.0


def test_maths_format(tmp_path: Path) -> None:
    """Problems with LaTeX: answers that are numbers are kept, the others counted."""
    records = [
        {
            "problem": "What is half of 3?",
            "answer": None,
            "solution": r"It is $\boxed{\frac{3}{2}}$.",
            "level": "1",
        },
        {"problem": "How wide?", "solution": "x", "answer": r"12\text{ cm}"},
        {"problem": "Which root?", "answer": r"\sqrt{2}", "solution": ""},
        {"problem": "None?", "solution": "no box"},
        {"problem": "How many?", "answer": "2x"},  # x is no unit
    ]
    path = tmp_path / "math.jsonl"
    made = Mathematics(QuestionFile(write(path, *records), heldout_share=0.0))
    answers = {task.prompt: task.secret["answer"] for task in made.tasks("train")}
    assert answers == {"What is half of 3?": r"\frac{3}{2}", "How wide?": r"12\text{ cm}"}
    assert made.task_set.warnings == ["3 questions were left out: the answer is no number"]
    half = next(task for task in made.tasks("train") if "half" in task.prompt)
    for answer, worth in (("3/2", 1.0), ("1.5", 1.0), (r"\boxed{\frac{3}{2}}", 1.0), ("2/3", 0.0)):
        assert judged(made, half, answered(answer)).reward == worth
    wide = next(task for task in made.tasks("train") if "wide" in task.prompt)
    for answer, worth in (("12", 1.0), ("120 mm", 1.0), ("12 km", 0.0)):
        assert judged(made, wide, answered(answer)).reward == worth
    path.write_text(json.dumps(records[2]))
    with pytest.raises(DataError, match="no questions in it; 1 questions were left out"):
        Mathematics(QuestionFile(str(path)))
    path.write_text(json.dumps({"text": "?"}))
    with pytest.raises(DataError, match="fields are 'question' and 'answer', or MATH's 'problem'"):
        Mathematics(QuestionFile(str(path)))


@pytest.mark.long
def test_expressions_are_kept_when_they_are_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    records = [
        {"problem": "Which root?", "answer": r"\sqrt{8}"},
        {"problem": "Which root?", "answer": r"$\sqrt{8}$"},  # the same
        {"problem": "Which day?", "answer": r"\text{Friday}"},
        {"problem": "How many?", "answer": "7"},
        {"problem": "Which share?", "answer": r"\frac{360}7"},
        {"problem": "Broken?", "answer": r"\frac{x}"},
    ]
    path = tmp_path / "math.jsonl"
    made = Mathematics(QuestionFile(write(path, *records), heldout_share=0.0, expressions=True))
    assert len(made.tasks("train")) == 3
    (warning,) = made.task_set.warnings
    assert "2 questions were left out: the answer is neither a number nor an exp" in warning
    share = next(task for task in made.tasks("train") if "share" in task.prompt)
    assert judged(made, share, answered(r"\(\frac{360}{7}\)")).reward == 1.0
    root = next(task for task in made.tasks("train") if "root" in task.prompt)
    for answer, worth in ((r"2\sqrt{2}", 1.0), (r"\sqrt{7}", 0.0), ("2.828", 0.0)):
        assert judged(made, root, answered(answer)).reward == worth
    write(path, records[0], records[0] | {"answer": "x"})
    (warning,) = Mathematics(QuestionFile(str(path), expressions=True)).task_set.warnings
    assert "line 2: the question was there before" in warning


@pytest.mark.long
def test_sums_are_split_and_written_out_where_there_is_no_tool() -> None:
    environment = Mathematics(Sums(digits=2, terms=3, count=30), interpreter="none")
    tasks = all_tasks(environment)
    assert len({task.prompt for task in tasks}) == 60
    for task in tasks:
        first, second, third = numbers_in(task.prompt)
        assert task.secret["answer"] == str(first + second + third)
        (action,) = environment.oracle(task)
        assert action.thought.split("=") == [
            f"{first}+{second}+{third}",
            f"{first + second}+{third}",
            task.secret["answer"],
        ]
        assert reward(environment, task, action) == 1.0
    assert environment.tools() == []
    assert environment.ablations() == {}
    step = asyncio.run(environment.fresh().step(calling("python", code="1")))
    assert "there is no tool 'python'" in step.results[0].content
    with pytest.raises(ConfigError, match="only about 40 such tasks: lower count"):
        Mathematics(Sums(digits=1, count=1000))


def test_a_share_of_the_solutions_is_in_writing() -> None:
    environment = Mathematics(Sums(digits=1, terms=4, count=200), written=0.3)
    lengths = [len(environment.oracle(task)) for task in all_tasks(environment)]
    assert set(lengths) == {1, 2}
    assert 0.25 < lengths.count(1) / len(lengths) < 0.35


def test_word_problems_in_writing() -> None:
    environment = Mathematics(MadeProblems(30), interpreter="none")
    for task in all_tasks(environment):
        (action,) = environment.oracle(task)
        assert action.thought.endswith(f"={task.secret['answer']}")
        assert reward(environment, task, action) == 1.0


def test_whether_a_thought_checks_is_reported(made: Mathematics) -> None:
    task = made.tasks("train")[0]
    for thought, checked in (("3+4=7 Check: 3+4=7", 1.0), ("3+4=7", 0.0)):
        assert judged(made, task, Action("", thought, answer="7")).parts["checked"] == checked


def test_python_tells_the_last_line_of_an_error(python: Mathematics) -> None:
    """As in ToRL: a traceback is long, and its last line says what is wrong."""
    task = python.tasks("train")[0]
    assert reward(python, task, *python.oracle(task)) == 1.0
    (call,) = python.oracle(task)[0].calls
    assert call.arguments["code"] == f"print({task.secret['solution'][0]})"
    codes = ("print(3 + 4)", "print(3 + 4", "3 / 0", "import sys; sys.exit(1)")
    play = played(python, task, *(calling("python", code=code) for code in codes))
    results = [turn.step.results[0] for turn in play.trajectory.turns if turn.step]
    assert [result.ok for result in results] == [True, False, False, False]
    assert [result.content for result in results] == [
        "7",
        "Error: SyntaxError: '(' was never closed",
        "Error: ZeroDivisionError: division by zero",
        "Error: (no output)",
    ]
    assert [tool.name for tool in python.tools()] == ["python"]
    ablation = python.ablations()["no_python"]
    without = played(ablation, task, *python.oracle(task)).trajectory
    assert set(without.observed) == {"Error: the python does not work now"}
