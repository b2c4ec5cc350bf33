"""An agent of smolagents, which calls a tool for its answer too, and tells its history in words."""

from people import search as look_up
from smolagents import LogLevel, OpenAIModel, Tool, ToolCallingAgent


class Search(Tool):
    name = "search"
    description = "Look a person up."
    inputs = {"name": {"type": "string", "description": "The person."}}
    output_type = "string"

    def __init__(self, records):
        super().__init__()
        self.records = records

    def forward(self, name: str) -> str:
        return look_up(self.records, name)


def run(task, model):
    policy = OpenAIModel(model.name, api_base=model.base_url, api_key=model.api_key)
    agent = ToolCallingAgent([Search(task.data["records"])], policy, verbosity_level=LogLevel.OFF)
    return str(agent.run(task.prompt, max_steps=4))
