"""Behaviours of demonstrations that studies imitate (`sft.demonstrations.behaviours`)."""

from dataclasses import replace

from turnwise.rollout.demonstrations import Script


def checked(script: Script, other: Script) -> Script:
    """Thinks all of its last thought once more before it answers, as a check."""
    del other
    last = script[-1]
    return [*script[:-1], replace(last, thought=f"{last.thought} check: {last.thought}")]


def faulty(script: Script, other: Script) -> Script:
    """Makes its first call with a bracket too many, and then mends it."""
    del other
    if not script[0].calls:
        return script
    (call,) = script[0].calls
    (name,) = call.arguments
    slip = replace(call, arguments={name: f"{call.arguments[name]}("})
    return [replace(script[0], calls=(slip,)), *script]


def premature(script: Script, other: Script) -> Script:
    """Answers as soon as a name is found, with the thought that led to the next tool call."""
    del other
    if len(script) < 2 or not script[1].calls:
        return script
    argument = str(next(iter(script[1].calls[0].arguments.values())))
    return [script[0], replace(script[1], calls=(), answer=argument)]
