"""The wing: the command `synthesise` and its section."""

from turnwise.wings import Wing

WING = Wing(
    commands={"synthesise": "turnwise_synthesis.command:synthesise"},
    settings={"synthesis": "turnwise_synthesis.settings:SynthesisConfig"},
)
