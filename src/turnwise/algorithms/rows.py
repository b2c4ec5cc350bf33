"""The algorithms by name: each is a row of choices, none a trainer of its own."""

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import PLAIN_SUM

ALGORITHMS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm("grpo", "arXiv 2402.03300", differs="no KL term, which has kl_coefficient 0.04"),
        Algorithm(
            "dr_grpo",
            "arXiv 2503.20783",
            estimator="dr_grpo",
            aggregation="constant",
            numbers={"length": 768.0},
        ),
        Algorithm(
            "dapo",
            "arXiv 2503.14476",
            aggregation="token_mean",
            group_filter="all_equal",
            reward_shaping="overlong",
            differs="groups that all_equal drops are sampled again with "
            "train.dynamic_sampling_rounds alone",
            numbers={"clip_high": 0.28},
        ),
        Algorithm(
            "gspo",
            "arXiv 2507.18071",
            ratio_level="sequence",
            # The sampler's log-probabilities differ from the trainer's by more than the clips.
            correction="none",
            numbers={"clip_low": 3e-4, "clip_high": 4e-4},
        ),
        Algorithm(
            "simpletir",
            "arXiv 2509.02479",
            trajectory_filter="void_turns",
            numbers={"clip_high": 0.28, "dual_clip": 3.0},
        ),
        Algorithm("rloo", "arXiv 2402.14740", estimator="rloo", aggregation=PLAIN_SUM),
        Algorithm(
            "reinforce",
            "Williams 1992",
            estimator="reinforce_baseline",
            objective="policy_gradient",
            aggregation=PLAIN_SUM,
        ),
        Algorithm(
            "reinforce_pp",
            "arXiv 2501.03262",
            estimator="returns",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm(
            "reinforce_pp_baseline",
            "arXiv 2501.03262",
            estimator="returns_baseline",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm("cispo", "arXiv 2506.13585", objective="cispo", aggregation="token_mean"),
        Algorithm("sapo", "arXiv 2511.20347", objective="sapo"),
        Algorithm("dppo", "arXiv 2602.04879", objective="dppo_tv", aggregation="token_mean"),
        Algorithm("gdpo", "arXiv 2601.05242", estimator="gdpo"),
        Algorithm("max_rl", "arXiv 2602.02710", estimator="max_rl", aggregation="token_mean"),
        Algorithm("pass_at_k", "arXiv 2508.10751", estimator="pass_at_k"),
        Algorithm("opo", "arXiv 2505.23585", estimator="opo", aggregation=PLAIN_SUM),
        Algorithm("gmpo", "arXiv 2507.20673", objective="gmpo"),
        Algorithm(
            "clip_cov",
            "arXiv 2505.22617",
            token_filter="clip_cov",
            aggregation="token_mean",
            differs="the largest covariances between the bounds are taken, where the paper draws "
            "by lot",
        ),
        Algorithm(
            "kl_cov",
            "arXiv 2505.22617",
            objective="policy_gradient",
            token_filter="kl_cov",
            aggregation="token_mean",
            differs="the divergence is r - 1 - log r, where the authors' program has |log r|",
        ),
        Algorithm(
            "kimi_k2",
            "arXiv 2507.20534",
            estimator="dr_grpo",
            objective="sequence_squared",
            aggregation=PLAIN_SUM,
            differs="no budgets of tokens, and no loss on curated data (demonstration_coefficient)",
        ),
        # The paper's GRPO form, its KL penalty in the reward and not in the loss (appendix B.2).
        Algorithm(
            "starpo", "arXiv 2504.20073", kl_reward_coefficient=0.001, entropy_coefficient=0.001
        ),
        # The paper's PPO form with all that stabilises it: critic, filter, no KL, higher clip.
        Algorithm(
            "starpo_s",
            "arXiv 2504.20073",
            estimator="token_gae",
            whitening=True,
            group_filter="top_spread",
            entropy_coefficient=0.001,
            numbers={"clip_high": 0.28},
        ),
        Algorithm(
            "echo",
            "arXiv 2605.24517",
            observation_coefficient=0.05,
            differs="every observed token counts the same, where there every sequence does",
        ),
        Algorithm("turn_rloo", "RLOO over turns", estimator="turn_rloo", aggregation=PLAIN_SUM),
        Algorithm(
            "ppo",
            "arXiv 1707.06347",
            estimator="token_gae",
            whitening=True,
            aggregation="token_mean",
            numbers={"dual_clip": 3.0},
        ),
        Algorithm(
            "turn_ppo",
            "arXiv 2512.17008",
            estimator="turn_gae",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm(
            "bilevel_ppo",
            "arXiv 2510.16907",
            estimator="bilevel_gae",
            whitening=True,
            aggregation="token_mean",
        ),
        Algorithm(
            "vapo",
            "arXiv 2504.05118",
            estimator="length_adaptive_gae",
            aggregation="token_mean",
            success_coefficient=0.1,
            differs="the critic is trained first with algorithm.critic.pretraining_steps alone",
            numbers={"clip_high": 0.28},
        ),
    )
}
