"""An agent on OpenAI's own package: chat completions in a loop, with a tool."""

import json

from openai import AsyncOpenAI
from people import search

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Look a person up.",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    }
]


async def run(task, model):
    messages = [{"role": "user", "content": task.prompt}]
    async with AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        while True:
            reply = await client.chat.completions.create(
                model=model.name, messages=messages, tools=TOOLS
            )
            message = reply.choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message)
            for call in message.tool_calls:
                name = json.loads(call.function.arguments)["name"]
                found = search(task.data["records"], name)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
