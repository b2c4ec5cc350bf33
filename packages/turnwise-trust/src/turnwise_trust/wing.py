"""The wing: the commands `audit` and `doctor`, and alarms while a run trains."""

from turnwise.wings import Wing

WING = Wing(
    commands={
        "audit": "turnwise_trust.audit.command:audit",
        "doctor": "turnwise_trust.doctor.command:doctor",
    },
    parts={"monitor": {"alarms": ("turnwise_trust.alarms.monitor:alarms_of", "what is wrong")}},
    settings={"alarms": "turnwise_trust.alarms.settings:AlarmsConfig"},
    sections={"alarms": "turnwise_trust.alarms.monitor:checked"},
)
