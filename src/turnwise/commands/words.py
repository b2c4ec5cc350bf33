"""Episodes of which only the words are known, as the command line shows them."""

import json
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from turnwise.monitor.display import visible
from turnwise.tokens import Source


def words_text(row: Mapping[str, Any], styles: Mapping[Source, str]) -> Text:
    """The task, what the model said and called, and what came back; `styles` are by source."""
    text = Text()
    text.append(visible(f"{row['prompt']}\n"), styles[Source.USER])
    for action, step in zip(json.loads(row["actions"]), json.loads(row["steps"]), strict=True):
        calls = [f"{call['name']}({json.dumps(call['arguments'])})" for call in action["calls"]]
        said = "\n".join(filter(None, [action["text"], *calls]))
        text.append(visible(f"«{said}»\n"), styles[Source.MODEL])
        if step is not None and (shown := step["observation"]) is not None:
            content, source = shown
            text.append(visible(f"{content}\n"), styles[Source(source)])
    return text
