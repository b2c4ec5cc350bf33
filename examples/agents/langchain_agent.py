"""LangChain's agent (LangGraph's ReAct loop), with a tool."""

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from people import search as look_up


async def run(task, model):
    @tool
    def search(name: str) -> str:
        """Look a person up."""
        return look_up(task.data["records"], name)

    chat = ChatOpenAI(model=model.name, base_url=model.base_url, api_key=model.api_key)
    agent = create_agent(chat, tools=[search])
    done = await agent.ainvoke({"messages": [{"role": "user", "content": task.prompt}]})
    return done["messages"][-1].content
