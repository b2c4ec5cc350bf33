"""The wing: the command `agent`, a player for the section `agent`, served models evaluated."""

from turnwise.wings import Wing

WING = Wing(
    commands={"agent": "turnwise_gateway.checking:app"},
    parts={
        "evaluation": {
            "endpoint": (
                "turnwise_gateway.evaluating:evaluate_endpoint",
                "a model behind an endpoint of chat completions",
            )
        },
        "first_check": {
            "agent": ("turnwise_gateway.agents:check_agent", "the agent's function or program")
        },
    },
    settings={"agent": "turnwise_gateway.settings:AnyAgentConfig"},
    sections={"agent": "turnwise_gateway.agent_episode:with_agent"},
)
