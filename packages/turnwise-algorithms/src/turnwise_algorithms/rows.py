"""The algorithms of this wing, each a row of choices as those of the core are."""

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import PLAIN_SUM

OTB = Algorithm("otb", "arXiv 2602.07078", estimator="otb", aggregation=PLAIN_SUM)
DISTILLATION = Algorithm(
    "distillation",
    "arXiv 2306.13649",
    estimator="distillation",
    objective="policy_gradient",
    aggregation="token_mean",
)
SDPO = Algorithm(
    "sdpo",
    "arXiv 2601.20802",
    estimator="none",
    aggregation="token_mean",
    differs="the divergence is over the whole vocabulary, and no feedback is shown",
    self_teacher_coefficient=1.0,
)
HERO = Algorithm(
    "hero",
    "arXiv 2606.11559",
    estimator="none",
    aggregation="token_mean",
    differs="the reply itself is read, without reflection on it, for one turn of a failed episode",
    feedback_teacher_coefficient=1.0,
)
IGPO = Algorithm("igpo", "arXiv 2510.14967", estimator="information_gain")
PRIME = Algorithm(
    "prime",
    "arXiv 2502.01456",
    estimator="process_rloo",
    whitening=True,
    aggregation="token_mean",
    group_filter="all_equal",
    differs="groups with some success are kept, there those with 0.2 to 0.8",
)
REMAX = Algorithm(
    "remax",
    "arXiv 2310.10505",
    estimator="remax",
    objective="policy_gradient",
    aggregation=PLAIN_SUM,
    rollout="greedy",
)
TREE_GRPO = Algorithm(
    "tree_grpo",
    "arXiv 2509.21240",
    estimator="tree_grpo",
    aggregation=PLAIN_SUM,
    rollout="random_branches",
)
ARPO = Algorithm(
    "arpo",
    "arXiv 2507.19849",
    estimator="arpo",
    aggregation="token_mean",
    rollout="entropy_branches",
)
ARPO_SOFT = Algorithm(
    "arpo_soft",
    "arXiv 2507.19849",
    estimator="arpo_soft",
    aggregation="token_mean",
    rollout="entropy_branches",
)
COUNTERFACTUAL = Algorithm(
    "counterfactual",
    "re-rolls of every turn",
    estimator="counterfactual",
    aggregation=PLAIN_SUM,
    rollout="turn_replays",
)
HCA = Algorithm("hca", "Harutyunyan 2019", estimator="hca", aggregation=PLAIN_SUM)
HCAPO = Algorithm("hcapo", "arXiv 2603.08754", estimator="hcapo")
MT_GRPO = Algorithm("mt_grpo", "arXiv 2505.11821v1", estimator="mt_grpo")
IPO = Algorithm(
    "ipo",
    "prime-rl 0.9",
    estimator="dr_grpo",
    objective="ipo",
    aggregation="token_mean",
)
KPOP = Algorithm(
    "kpop",
    "KPop of Ant Group, 2026",
    objective="kpop",
    aggregation="token_mean",
)
SCORE_CENTERING = Algorithm(
    "score_centering",
    "arXiv 2609.20807",
    estimator="dr_grpo",
    objective="centred",
    aggregation="token_mean",
    differs="the sampler's whole distribution, where there it is known of its likeliest tokens",
)
FRESH_REPLAY = Algorithm(
    "fresh_replay",
    "arXiv 2604.16918",
    estimator="returns",
    whitening=True,
    aggregation="token_mean",
    extension="fresh_replay",
    differs="importance stays as it is, where there it rises to 1",
)
PAW = Algorithm("paw", "arXiv 2606.02388", extension="world_model")
MIPU = Algorithm(
    "mipu",
    "arXiv 2606.29526",
    correction="truncated",
    extension="acceptance",
    numbers={"dual_clip": 3.0},
    differs="the next step's episodes test an update, and teach nothing if it is undone; there "
    "others do, also of the last one",
)
GIGPO = Algorithm("gigpo", "arXiv 2505.10978", estimator="gigpo")
