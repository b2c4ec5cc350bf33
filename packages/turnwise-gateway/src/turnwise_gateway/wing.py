"""The wing: the command `agent`, and a player for the section `agent`."""

from turnwise.wings import Wing

WING = Wing(
    commands={"agent": "turnwise_gateway.checking:app"},
    sections={"agent": "turnwise_gateway.agent_episode:make_host"},
)
