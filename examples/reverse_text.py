"""prime-rl's `reverse-text` as an environment of one's own: write a text backwards, in tags.

The texts are sentences of the documentation that is installed with Python, 24 to 64 characters
long; those of the other split are no task of this one. The reward is how alike both are.
"""

import ast
import re
import sysconfig
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from turnwise import Action, Environment, Task, Verdict

TAGGED = re.compile(r"<reversed_text>(.*?)</reversed_text>", re.DOTALL)
SENTENCE = re.compile(r"[A-Z][a-z]*( [A-Za-z',;-]+)+\.")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sentences(shortest, longest):
    files = Path(sysconfig.get_path("stdlib")).glob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_bytes())))
    texts = (ast.get_docstring(node) or "" for node in nodes if isinstance(node, DOCUMENTED))
    blocks = (" ".join(block.split()) for text in texts for block in text.split("\n\n"))
    found = {one for block in blocks for one in re.split(r"(?<=\.) ", block)}
    return sorted(
        one for one in found if shortest <= len(one) <= longest and SENTENCE.fullmatch(one)
    )


class ReverseText(Environment):
    def __init__(self, shortest: int = 24, longest: int = 64):
        self.texts = sentences(shortest, longest)

    def tasks(self, split):
        chosen = [one for n, one in enumerate(self.texts) if (n % 8 == 0) == (split == "heldout")]
        return [Task(one, one, {"reversed": one[::-1]}) for one in chosen]

    async def verify(self, trajectory):
        tagged = TAGGED.search(trajectory.answer or "")
        written, wanted = tagged[1].strip() if tagged else "", trajectory.task.secret["reversed"]
        alike = SequenceMatcher(None, written, wanted).ratio()
        return Verdict(alike, written == wanted, {"tagged": float(tagged is not None)})

    def oracle(self, task):
        return [Action("", answer=f"<reversed_text>{task.secret['reversed']}</reversed_text>")]
