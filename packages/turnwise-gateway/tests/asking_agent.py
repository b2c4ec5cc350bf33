"""An agent that asks twice, and others that hang up on their replies."""

from typing import Any

from turnwise.types import Task
from turnwise_gateway.requests import Message, Request


async def run(task: Task, model: Any) -> None:
    """Asks, and goes on from the reply."""
    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    reply = await model.chat(messages)
    messages += [reply["choices"][0]["message"], {"role": "user", "content": "Sure?"}]
    await model.chat(messages)


async def with_roles(task: Task, model: Any) -> None:
    """Lets the first role ask, and the others answer."""
    reply = await model.chat([{"role": "user", "content": task.prompt}])
    words = reply["choices"][0]["message"]["content"] or "?"
    for role in model.roles[1:]:
        await model.chat([{"role": "user", "content": words}], role=role)


async def hang_up(task: Task, model: Any) -> None:
    """Asks twice, and is gone when the second reply is there."""
    await model.chat([{"role": "user", "content": task.prompt}])
    await model._session.ask(Request((Message("user", "Again?"),)))


async def hang_up_at_times(task: Task, model: Any) -> None:
    """Asks, and is gone in every other episode before it has a reply."""
    request = Request((Message("user", task.prompt),))
    reply = await model._session.ask(request)
    if int(model.base_url.split("/")[4]) % 2:
        model._session.arrived(reply)
