"""The program that makes reasoning-gym's questions, and asks what a dataset thinks of an answer.

The text of this file is itself the program: standard library and the package only. It runs in a
sandbox, with one hash seed: some datasets go through sets and would make another question in
another process, and several scorers evaluate the answer as Python or with sympy. Here these get
literals, and expressions of known functions.

stdin: one JSON object. With `make`, settings by dataset, and `seeds`, it writes MADE; with
`answer`, its last line on stdout is a JSON object with `score`, 0 to 1.
"""

import ast
import importlib
import importlib.util
import json
import random
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy

PACKAGE = "reasoning_gym"
MADE = "made.json"
"""File in the work folder."""
NONSENSE = "?"
WAVES = ("sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh")
FUNCTIONS = frozenset(
    ("Abs", "abs", "exp", "log", "ln", "sqrt", "pi", *WAVES, *(f"a{name}" for name in WAVES))
)
"""Names that sympy may be given; those of one letter besides."""
_NAME = re.compile(r"[^\W\d]\w*")
_TAME = re.compile(r"[\w\s.,+*/^()-]*")
_POWER = re.compile(r"\*\*\s*\(?\s*-?\s*\w{1,3}(?:\s*/\s*\w{1,3})?\s*\)?(?![\w.])(?!\s*\*\*)")
_LONG = re.compile(r"\w{100}")


def main() -> None:
    asked = json.load(sys.stdin)
    if "answer" not in asked:
        Path(MADE).write_text(json.dumps(make(asked["make"], asked["seeds"], asked["count"])))
        return
    module = load(asked["module"])
    dataset, entry = made(
        getattr(module, asked["dataset"]), getattr(module, asked["config"]), asked["settings"]
    )
    texts = repr(entry)
    vars(module)["eval"] = lambda source, *rest: (
        eval(source, *rest) if source in texts else ast.literal_eval(source)
    )
    print("\n" + json.dumps({"score": minimal_score(dataset, entry, asked["answer"])}))


def make(
    settings: dict[str, dict[str, Any]], seeds: dict[str, list[int]], count: int
) -> dict[str, Any]:
    """Questions by dataset: its place, whether it has a scorer, and (seed, question, answer) of
    `count` different ones, or as many as the seeds give; or `unknown` or `error`."""
    import reasoning_gym
    from reasoning_gym.dataset import ProceduralDataset

    known = reasoning_gym.factory.DATASETS
    found: dict[str, Any] = {}
    for name, chosen in settings.items():
        if name not in known or name == "composite":
            return {"unknown": name, "known": sorted({*known} - {"composite"})}
        kind, config = known[name]
        items: dict[str, Any] = {}
        for seed in seeds[name]:
            try:
                _, entry = made(kind, config, {**chosen, "seed": seed, "size": 1})
            except (TypeError, ValueError, AssertionError) as error:
                return {"error": f"{name}: {error}"}
            answer = None if entry["answer"] is None else str(entry["answer"])
            items.setdefault(str(entry["question"]), [seed, str(entry["question"]), answer])
            if len(items) == count:
                break
        found[name] = {
            "module": kind.__module__,
            "dataset": kind.__name__,
            "config": config.__name__,
            "scores": kind.score_answer is not ProceduralDataset.score_answer,
            "items": list(items.values()),
        }
    return found


def made(kind: Any, config: Any, settings: dict[str, Any]) -> tuple[Any, Any]:
    """The dataset of one seed, and its one entry; a random state that all share is seeded too."""
    random.seed(settings["seed"])
    numpy.random.seed(settings["seed"])
    dataset = kind(config=config(**settings))
    return dataset, dataset[0]


def load(name: str) -> Any:
    """A dataset's module without the package's other hundred, which take seconds: the packages
    above it are empty."""
    *parents, _ = name.split(".")
    spec = importlib.util.find_spec(PACKAGE)
    if parents[:1] == [PACKAGE] and spec is not None and spec.submodule_search_locations:
        path = spec.submodule_search_locations[0]
        for depth in range(1, len(parents) + 1):
            package = types.ModuleType(".".join(parents[:depth]))
            package.__path__ = ["/".join([path, *parents[1:depth]])]
            sys.modules[package.__name__] = package
        importlib.import_module(f"{PACKAGE}.coaching")  # it and `factory` import each other
    return importlib.import_module(name)


def minimal_score(dataset: Any, entry: Any, answer: str) -> float:
    """The dataset's score of an answer; 0 where it gives 1 for nonsense too, or for the answer
    without its first or last word: then it only looked for what is right somewhere in it."""
    words = list(re.finditer(r"\S+", answer))
    score = scored(dataset, entry, answer)
    if score < 1:
        return score
    shorter = [answer[words[1].start() :], answer[: words[-2].end()]] if len(words) > 1 else []
    if any(scored(dataset, entry, text) >= 1 for text in (NONSENSE, *shorter)):
        return 0.0
    return score


def scored(dataset: Any, entry: Any, answer: str) -> float:
    """The dataset's own score; 0 where its scorer fails."""
    if "sympy" in sys.modules and not is_tame(answer):
        return 0.0
    try:
        return float(dataset.score_answer(answer, entry))
    except Exception:  # noqa: BLE001 - a scorer may raise anything on what a model wrote
        return 0.0


def is_tame(answer: str) -> bool:
    """Whether sympy, which evaluates what it parses, may have it: known functions, variables of one
    letter, small powers."""
    powers = answer.replace("^", "**")
    names = (name for name in _NAME.findall(answer) if len(name) > 1)
    return bool(
        _TAME.fullmatch(answer)
        and not _LONG.search(answer)
        and powers.count("**") == len(_POWER.findall(powers))
        and all(name in FUNCTIONS for name in names)
    )


if __name__ == "__main__":
    main()
