"""A graph of LangGraph: a node for the model, one for its tools, and the edges between them."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from people import search as look_up


def searching(records):
    @tool
    def search(name: str) -> str:
        """Look a person up."""
        return look_up(records, name)

    return search


async def run(task, model):
    chat = ChatOpenAI(model=model.name, base_url=model.base_url, api_key=model.api_key)
    tools = [searching(task.data["records"])]

    async def ask(state: MessagesState):
        return {"messages": [await chat.bind_tools(tools).ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node(ask).add_node(ToolNode(tools))
    graph.set_entry_point("ask").add_edge("tools", "ask")
    graph.add_conditional_edges("ask", tools_condition)
    done = await graph.compile().ainvoke({"messages": [("user", task.prompt)]})
    return done["messages"][-1].content
