"""The wing: the command `synthesise`, its section and its methods; the stage of texts."""

from pathlib import Path

from turnwise.wings import Wing

STUDIES = Path(__file__).parent / "studies"

WING = Wing(
    commands={"synthesise": "turnwise_synthesis.command:synthesise"},
    parts={
        "synthesis_method": {
            "first_order": (
                "turnwise_synthesis.founder:FirstOrder",
                "texts for [cpt]: first calls that are not executed, reasoning from knowledge",
            ),
            "higher_order": (
                "turnwise_synthesis.founder:HigherOrder",
                "texts for [cpt]: a run's trajectories with alternatives at each step",
            ),
            "openapi": (
                "turnwise_synthesis.openapi:OpenApi",
                "questions about what an HTTP API tells, for the environment openapi",
            ),
            "tables": (
                "turnwise_synthesis.tables.method:Tables",
                "questions about the tables of a SQLite file, for the environment sql",
            ),
            "transitions": (
                "turnwise_synthesis.transitions:Transitions",
                "what the actions of a run brought, to be predicted (RWML)",
            ),
            "webshaper": (
                "turnwise_synthesis.webshaper.method:WebShaper",
                "questions for the search environment out of formulas that are expanded by layers",
            ),
        }
    },
    files={"study": {path.stem: path for path in STUDIES.glob("*.toml")}},
    settings={
        "cpt": "turnwise_synthesis.settings:CptConfig",
        "synthesis": "turnwise_synthesis.settings:SynthesisConfig",
    },
    stages={"cpt": ("turnwise_synthesis.cpt:ContinualPretraining", "first")},
)
