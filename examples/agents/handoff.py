"""Two agents of OpenAI's Agents SDK: the first finds the friend and hands over to the second."""

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI
from people import search as look_up


async def run(task, model):
    @function_tool
    def search(name: str) -> str:
        """Look a person up."""
        return look_up(task.data["records"], name)

    async with AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        policy = OpenAIResponsesModel(model.name, client)
        towns = Agent("towns", tools=[search], model=policy)
        friends = Agent("friends", tools=[search], handoffs=[towns], model=policy)
        quiet = RunConfig(tracing_disabled=True)
        return (await Runner.run(friends, task.prompt, run_config=quiet)).final_output
