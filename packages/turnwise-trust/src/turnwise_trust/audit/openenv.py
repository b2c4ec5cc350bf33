"""OpenEnv's names for what an audit checks, by which reports can be compared.

Source: OpenEnv's RFC 008, its mapping of 44 tests. Those of builds, images, manifests and hosts
have no counterpart here. Difficulty, headroom and signal need a policy: `turnwise preflight`.
"""

from collections.abc import Mapping

PANEL = "statistical.adversarial_floor"
CHECK_IDS: Mapping[str, str] = {
    "well-formed reward": "runtime.reward_well_formed",
    "episode determinism": "runtime.episode_determinism",
    "cross-episode isolation": "runtime.episode_isolation",
    "secrets": "runtime.oracle_containment",
    "the answer in public data": "semantic.no_solution_leakage",
    "the prompt searched for the answer": "semantic.no_solution_leakage",
    "an agent that does nothing": "semantic.floor_gap",
    "the oracle": "semantic.oracle_max",
    "objective: verifier determinism": "semantic.verifier_determinism",
    "low noise: variance of the reward": "statistical.variance_bound",
    "reward without success": "statistical.gameability_gap",
    **dict.fromkeys(
        (
            *("a constant answer", "one answer for all tasks", "one script for all tasks"),
            *("a repeated step", "an empty or malformed answer", "opposite answers"),
            *("an answer of another task", "no answer at all", "a very long answer"),
            *("the prompt echoed", "an enumeration", "a hedged answer", "a number that is near"),
            *("another unit", "a part of the answer", "the right answer elsewhere"),
            *("the observation echoed", "a denied answer", "an error that gives the right call"),
            *("files that hold the answer", "grader: outcome files", "grader: import path"),
            *("grader: exits", "grader: printed results", "grader: replaced functions"),
            "grader: tests overwritten",
        ),
        PANEL,
    ),
}
"""Check ids by the names of an audit's checks."""
