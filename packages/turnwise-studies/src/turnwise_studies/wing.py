"""The wing: five commands, studies and behaviours that come with it, a format of conversations."""

from pathlib import Path

from turnwise.wings import Wing

SHIPPED = Path(__file__).parent / "shipped"
WING = Wing(
    commands={
        "build-tiny": "turnwise_studies.tiny.command:build_tiny",
        "export": "turnwise_studies.formats.command:export",
        "rescore": "turnwise_studies.evaluations.command:rescore",
        "study": "turnwise_studies.command:study",
        "transfer": "turnwise_studies.evaluations.command:transfer",
    },
    parts={
        "behaviour": {
            "checked": (
                "turnwise_studies.behaviours:checked",
                "thinks all of its last thought once more before it answers, as a check",
            ),
            "faulty": (
                "turnwise_studies.behaviours:faulty",
                "makes its first call with a bracket too many, and then mends it",
            ),
            "premature": (
                "turnwise_studies.behaviours:premature",
                "answers as soon as a name is found, with the thought that led to the next call",
            ),
        },
        "evaluation": {
            "robustness": (
                "turnwise_studies.evaluations.command:robustness",
                "under worse conditions: tools that fail, no instructions",
            )
        },
        "file_format": {
            "atif": (
                "turnwise_studies.formats.atif:conversations_of",
                "trajectories in ATIF, the interchange format of Harbor",
            )
        },
    },
    files={"study": {path.stem: path for path in SHIPPED.glob("*.toml")}},
)
