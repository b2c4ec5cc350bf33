"""The data of a reward model: episodes of runs and of files, with what was said of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from turnwise.environments.records import lines_of
from turnwise.errors import DataError
from turnwise.parts.conversations import Message, checked_messages, conversation_tokens
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import groups_of, read_rows, rows_of_tasks
from turnwise.tokens import Tokens
from turnwise_judges.reward_model.model import Lesson, PairsRewardModel, RewardModel


def read_lessons(
    data: Sequence[str], model: RewardModel, scaffold: Scaffold, tokenizer: PreTrainedTokenizerBase
) -> list[Lesson]:
    """The lessons of all sources, in order. Raises DataError for a source that cannot be used, or
    has nothing to learn from."""
    found = []
    for source in map(Path, data):
        if source.is_dir():
            own = list(_of_run(source, model, tokenizer))
        elif source.suffix == ".parquet":
            own = _of_rows(source, model, len(tokenizer))
        else:
            lines = _read("reward_model.data", source)
            own = [_of_line(value, model, scaffold, place) for place, value in lines]
        if not own:
            raise DataError(
                f"reward_model.data: {source} has nothing to learn from: {_wanted(model)}"
            )
        found += own
    return found


def parted(lessons: Sequence[Lesson], share: float, seed: int) -> tuple[list[Lesson], list[Lesson]]:
    """Lessons to train on, and held-out ones: about this share of the tasks, by the seed."""
    heldout = {
        task: derive(seed, "reward model", "heldout", task) / 2**63 < share
        for task in {lesson.task for lesson in lessons}
    }
    return (
        [lesson for lesson in lessons if not heldout[lesson.task]],
        [lesson for lesson in lessons if heldout[lesson.task]],
    )


def _wanted(model: RewardModel) -> str:
    if isinstance(model, PairsRewardModel):
        return "pairs are of one group and have different rewards"
    return "an episode has a verdict"


def _of_run(
    folder: Path, model: RewardModel, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Lesson]:
    """The lessons of all RL steps of a run: the tasks of its evaluations stay held out."""
    run = RunFolder.open(folder)
    if not any(run.tokenizer.glob("*")):
        raise DataError(f"reward_model.data: {folder} has no tokenizer: no run has begun there")
    if AutoTokenizer.from_pretrained(str(run.tokenizer)).get_vocab() != tokenizer.get_vocab():
        raise DataError(
            f"reward_model.data: {folder} was written with another tokenizer, and its tokens are "
            "read as they are: use runs of this model, or write them as conversations with "
            "`turnwise export`"
        )
    for file in sorted(run.trajectory_files()):
        if file.stem.startswith("step-"):
            yield from _of_rows(file, model, len(tokenizer))


def _of_rows(file: Path, model: RewardModel, vocabulary: int) -> list[Lesson]:
    if not file.is_file():
        raise DataError(f"reward_model.data: there is no file {file}")
    if file.stem.startswith("evaluation-"):
        raise DataError(
            f"reward_model.data: {file} has held-out tasks, which a reward is not to learn from: "
            "give the run's folder, whose RL steps are read"
        )
    rows = rows_of_tasks(read_rows(file))
    if any(row["images"] for row in rows):
        raise DataError(f"reward_model.data: {file} has images, and reward models read words alone")
    if any(max(row["ids"], default=0) >= vocabulary for row in rows):
        raise DataError(f"reward_model.data: {file} has tokens that this model does not have")
    return model.lessons(groups_of(rows))


def read_pairs(file: Path, scaffold: Scaffold) -> list[tuple[Tokens, Tokens]]:
    """The better and the worse episode of each line of a file. Raises DataError, with file and
    line, for a line that is no pair, and for a file without any."""
    return [_pair(value, scaffold, place) for place, value in check_pairs(file)]


def check_pairs(file: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """The lines of a file of pairs, each with its place. Raises DataError as `read_pairs` does,
    but for what a scaffold cannot write."""
    found = list(_read("preferences.file", file))
    for place, value in found:
        for name in ("chosen", "rejected"):
            _messages(value, name, place)
    if not found:
        raise DataError(f"preferences.file: {file} has no pair")
    return found


def _read(setting: str, file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a file of JSON lines, each with its place."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{setting}: {file} cannot be read: {error}") from None
    for place, line in lines_of(text, file):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"{place} is not JSON") from None
        if not isinstance(value, dict):
            raise DataError(f"{place} is not a JSON object")
        yield place, value


def _of_line(
    value: Mapping[str, Any], model: RewardModel, scaffold: Scaffold, place: str
) -> Lesson:
    if isinstance(model, PairsRewardModel):
        task = _task(_messages(value, "chosen", place))
        return model.pair(task, *_pair(value, scaffold, place))
    success = value.get("success")
    if not isinstance(success, bool):
        raise DataError(f'{place} has no "success": give true or false beside "messages"')
    messages = checked_messages(value.get("messages"), place)
    return model.lesson(_task(messages), conversation_tokens(messages, scaffold, place), success)


def _pair(value: Mapping[str, Any], scaffold: Scaffold, place: str) -> tuple[Tokens, Tokens]:
    both = [_messages(value, name, place) for name in ("chosen", "rejected")]
    better, worse = (conversation_tokens(one, scaffold, place) for one in both)
    return better, worse


def _messages(value: Mapping[str, Any], name: str, place: str) -> list[Message]:
    """One of a pair, behind the prompt of both."""
    prompt, own = value.get("prompt", []), value.get(name)
    if not isinstance(prompt, list):
        raise DataError(f'{place}: "prompt" is no list: give [{{"role": ..., "content": ...}}]')
    return checked_messages([*prompt, *own] if isinstance(own, list) else own, place, name)


def _task(messages: Sequence[Message]) -> str:
    """A name for what was asked: all before the first turn of the assistant."""
    asked = takewhile(lambda message: message["role"] != "assistant", messages)
    return json.dumps(list(asked), sort_keys=True)
