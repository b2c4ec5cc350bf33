"""The wing: the engine `vllm`."""

from turnwise.wings import Wing

WING = Wing(
    settings={"engine.vllm": "turnwise_vllm.settings:VllmEngineConfig"},
    parts={
        "engine": {
            "vllm": (
                "turnwise_vllm.engine:VllmEngine",
                "servers of vLLM, started and owned or already running, with sticky routing",
            )
        },
        "first_check": {
            "engine.vllm": (
                "turnwise_vllm.process:check_here",
                "a vLLM on this machine, where it serves",
            )
        },
    },
)
