"""An agent that asks twice, and another that hangs up on its replies."""

from typing import Any

from turnwise.types import Task


async def run(task: Task, model: Any) -> None:
    """Asks, and goes on from the reply."""
    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    reply = await model.chat(messages)
    messages += [reply["choices"][0]["message"], {"role": "user", "content": "Sure?"}]
    await model.chat(messages)


async def hang_up(task: Task, model: Any) -> None:
    """Asks, and leaves before the second reply."""
    import asyncio
    import json

    reply = await model.chat([{"role": "user", "content": task.prompt}])
    assert reply
    host, _, rest = model.base_url.removeprefix("http://").partition("/")
    _, writer = await asyncio.open_connection(*host.split(":"))
    messages = [{"role": "user", "content": "Again?"}]
    body = json.dumps({"model": model.name, "messages": messages})
    head = f"POST /{rest}/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
    writer.write(f"{head}\r\n\r\n{body}".encode())
    await writer.drain()
    while len(model._session.contexts.exchanges) < 2:  # it has come
        await asyncio.sleep(0.01)
    writer.transport.abort()
    while model._session.contexts.exchanges[-1].action is None:  # it is sampled, for nobody
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
