"""The wing: the command `judge`, and the judge of the section `judge`."""

from turnwise.wings import Wing

WING = Wing(
    commands={"judge": "turnwise_judges.command:judge"},
    sections={"judge": "turnwise_judges.section:make_judge_of_run"},
)
