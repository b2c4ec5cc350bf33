"""The wing: five commands, the studies that come with it, and a format of conversations."""

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
