"""An agent of pydantic-ai, with a tool."""

from openai import AsyncOpenAI
from people import search as look_up
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def run(task, model):
    async with AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        chat = OpenAIChatModel(model.name, provider=OpenAIProvider(openai_client=client))
        agent = Agent(chat)

        @agent.tool_plain
        def search(name: str) -> str:
            """Look a person up."""
            return look_up(task.data["records"], name)

        return (await agent.run(task.prompt)).output
