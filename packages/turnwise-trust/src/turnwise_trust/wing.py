"""The wing: the command `audit`."""

from turnwise.wings import Wing

WING = Wing(
    commands={
        "audit": "turnwise_trust.audit.command:audit",
    },
)
