"""The wing: environments, scaffolds, parts of rewards, a tool, embeddings, five commands."""

import tomllib
from pathlib import Path

from turnwise.wings import Wing

HERE = Path(__file__).parent
ENVIRONMENTS = tomllib.loads((HERE / "environments.toml").read_text())
REWARDS = "conduct answers unsupervised shaping toolrl mathematics proofs"
"""Modules that declare parts of rewards."""

WING = Wing(
    commands={
        "environments": "turnwise_environments.commands:environments",
        "inject": "turnwise_environments.commands:inject",
        "play": "turnwise_environments.commands:play",
        "rewards": "turnwise_environments.commands:rewards",
        "serve-environment": "turnwise_environments.serve:serve_environment",
    },
    parts={
        "environment": {
            name: (f"turnwise_environments.{place}", line)
            for name, (place, line) in ENVIRONMENTS.items()
        },
        "scaffold": {
            "code": (
                "turnwise_environments.scaffolds.code:CodeScaffold",
                "Code as action: a turn is a thought and Python between <code> and </code>.",
            ),
            "native": (
                "turnwise_environments.scaffolds.chat_template:ChatTemplateScaffold",
                "The model's own chat template, with its format for thoughts and tool calls.",
            ),
            "react": (
                "turnwise_environments.scaffolds.react:ReActScaffold",
                "ReAct's text: Thought, Action and Action Input; Observation; Final Answer.",
            ),
            "renderers": (
                "turnwise_environments.scaffolds.renderers:RenderersScaffold",
                "A family's format for messages, thoughts and tool calls (`renderers`).",
            ),
        },
        "first_check": {
            "scaffold.native": (
                "turnwise_environments.scaffolds.template_messages:check_template",
                "a chat template in the model's folder",
            )
        },
        "tool": {
            "calculate": (
                "turnwise_environments.tools.calculator:calculate",
                "one line of exact arithmetic",
            )
        },
        "index": {
            "embedding": (
                "turnwise_environments.retrieval:make_index",
                "passages near in meaning, by the vectors of an embedding",
            )
        },
    },
    reward_parts=tuple(f"turnwise_environments.rewards.{name}" for name in REWARDS.split()),
    files={"recipe": {path.stem: path for path in (HERE / "recipes").glob("*.toml")}},
)
