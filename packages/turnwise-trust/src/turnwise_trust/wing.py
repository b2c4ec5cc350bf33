"""The wing: its commands, the audit before a training, and alarms while a run trains."""

from turnwise.wings import Wing

WING = Wing(
    commands={
        "audit": "turnwise_trust.audit.command:audit",
        "doctor": "turnwise_trust.doctor.command:doctor",
        "preflight": "turnwise_trust.preflight.command:preflight",
    },
    parts={"monitor": {"alarms": ("turnwise_trust.alarms:alarms_of", "what is wrong")}},
    settings={
        "alarms": "turnwise_trust.settings:AlarmsConfig",
        "audit": "turnwise_trust.settings:AuditConfig",
    },
    sections={"alarms": "turnwise_trust.alarms:checked"},
    stages={"audit": ("turnwise_trust.audit.stage:QuickAudit", "first")},
)
"""The audit of an environment: attacks on its verifier and measurements, without a model."""
