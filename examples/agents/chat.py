"""An agent without a package: it asks the policy, looks up what it is told to, and asks again."""

import json

from people import search

TOOL = {
    "name": "search",
    "description": "Look a person up.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
}


async def run(task, model):
    messages = [{"role": "user", "content": task.prompt}]
    while True:
        reply = await model.chat(messages, tools=[{"type": "function", "function": TOOL}])
        message = reply["choices"][0]["message"]
        if not message.get("tool_calls"):
            return message["content"]
        messages.append(message)
        for call in message["tool_calls"]:
            name = json.loads(call["function"]["arguments"])["name"]
            found = search(task.data["records"], name)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
