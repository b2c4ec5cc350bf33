"""The wing: the kinds of a recipe's `sandbox.kind`."""

from turnwise.wings import Wing

WING = Wing(
    parts={
        "sandbox": {
            "docker": ("turnwise_sandbox.sandbox:Sandbox", "in Docker's containers"),
            "local": ("turnwise_sandbox.sandbox:Sandbox", "on this machine, by bubblewrap"),
            "sandbox_fusion": (
                "turnwise_sandbox.sandbox_fusion:SandboxFusion",
                "at a service that speaks SandboxFusion's protocol",
            ),
        }
    }
)
