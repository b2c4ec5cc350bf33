"""Turns of gpt-oss, whose messages stand in channels: thoughts in `analysis`, calls and words
beside them in `commentary`, the answer in `final`. The model begins calls otherwise than its chat
template writes them, with the tool behind the channel's name; both are read.

Source: "OpenAI Harmony Response Format" (OpenAI, 2025), sections on channels and function calling.
"""

import re

from turnwise_environments.scaffolds.tool_formats import Call, JsonCalls

CHANNEL = "<|channel|>"
"""Stands in every template of this form."""
_CALLED = "<|call|>"
_TOOL = re.compile(r"(?<!\S)to=(\S*)")


class Harmony:
    """Reads a turn, and as a `ToolFormat` calls and the text beside them."""

    def turn(self, text: str, end: str = "") -> tuple[str, str, list[Call]]:
        """The thought, what is said, and the calls of a text before a turn's `end`. Raises
        ValueError, in words for the agent."""
        channels: dict[str, list[str]] = {"analysis": [], "commentary": [], "final": []}
        calls: list[Call] = []
        channel = ""
        for message in text.split("<|end|>"):
            header, begun, said = message.partition("<|message|>")
            if not begun:
                raise ValueError("a message needs a channel, <|message|> and its text")
            header = header.strip().removeprefix("<|start|>assistant")
            role, _, rest = header.replace("<|constrain|>", " ").partition(CHANNEL)
            tool = _TOOL.search(f"{role} {rest}")
            channel = " ".join(rest.split()[:1])
            if channel not in channels or _TOOL.sub("", role).strip():
                raise ValueError(f"a message begins with {header!r}, which names no channel")
            if calls:
                raise ValueError("a message follows a tool call, which ends a turn")
            if tool:
                calls.append(_call(tool[1], said))
            else:
                channels[channel].append(said.strip())
        if channel == "analysis" and not calls:
            raise ValueError("the reasoning has no end")
        spoken = channels["final"] or channels["commentary"]
        return "\n".join(channels["analysis"]), "\n".join(spoken), calls

    def read(self, text: str) -> tuple[str, list[Call]]:
        """See `ToolFormat`."""
        return self.turn(text)[1:]

    def ends(self, token: str) -> bool:
        """Whether a token ends a call."""
        return token == _CALLED


def _call(recipient: str, arguments: str) -> Call:
    name = recipient.removeprefix("functions.")
    if not name or name == recipient:
        raise ValueError(f"a tool call goes to=functions.NAME, not to {recipient!r}")
    return JsonCalls().call({"name": name, "arguments": arguments}, 1)
