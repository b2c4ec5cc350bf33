"""An agent on Anthropic's own package: messages, streamed, with a tool."""

from anthropic import AsyncAnthropic
from people import search

TOOLS = [
    {
        "name": "search",
        "description": "Look a person up.",
        "input_schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    }
]


async def run(task, model):
    messages = [{"role": "user", "content": task.prompt}]
    async with AsyncAnthropic(base_url=model.anthropic_base_url, api_key=model.api_key) as client:
        while True:
            asked = {"model": model.name, "max_tokens": 64, "messages": messages, "tools": TOOLS}
            async with client.messages.stream(**asked) as stream:
                message = await stream.get_final_message()
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": search(task.data["records"], call.input["name"]),
                }
                for call in calls
            ]
            messages.append({"role": "assistant", "content": message.content})
            messages.append({"role": "user", "content": results})
