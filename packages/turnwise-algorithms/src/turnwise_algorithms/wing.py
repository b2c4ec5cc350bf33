"""The wing: algorithms, their parts, and the signals that they need."""

from turnwise.wings import Wing

WING = Wing(
    parts={
        "algorithm": {
            "otb": ("turnwise_algorithms.rows:OTB", "arXiv 2602.07078"),
            "distillation": ("turnwise_algorithms.rows:DISTILLATION", "arXiv 2306.13649"),
            "sdpo": ("turnwise_algorithms.rows:SDPO", "arXiv 2601.20802"),
            "igpo": ("turnwise_algorithms.rows:IGPO", "arXiv 2510.14967"),
            "prime": ("turnwise_algorithms.rows:PRIME", "arXiv 2502.01456"),
            "remax": ("turnwise_algorithms.rows:REMAX", "arXiv 2310.10505"),
            "tree_grpo": ("turnwise_algorithms.rows:TREE_GRPO", "arXiv 2509.21240"),
            "arpo": ("turnwise_algorithms.rows:ARPO", "arXiv 2507.19849"),
            "arpo_soft": ("turnwise_algorithms.rows:ARPO_SOFT", "arXiv 2507.19849"),
            "counterfactual": ("turnwise_algorithms.rows:COUNTERFACTUAL", "re-rolls of every turn"),
            "hca": ("turnwise_algorithms.rows:HCA", "Harutyunyan 2019"),
            "hcapo": ("turnwise_algorithms.rows:HCAPO", "arXiv 2603.08754"),
        },
        "estimator": {
            "tree_grpo": (
                "turnwise_algorithms.trees:tree_grpo",
                "z-score in the tree plus that in the group, over the path's length; shared "
                "turns have the sum (arXiv 2509.21240)",
            ),
            "arpo": (
                "turnwise_algorithms.trees:arpo",
                "z-score in the group; shared turns have the mean of their branches (arXiv "
                "2507.19849)",
            ),
            "arpo_soft": (
                "turnwise_algorithms.trees:arpo_soft",
                "z-score in the group; shared turns have the sum (arXiv 2507.19849)",
            ),
            "otb": (
                "turnwise_algorithms.estimators:otb",
                "less the mean at each token, weighted by summed score norms (arXiv 2602.07078)",
            ),
            "remax": (
                "turnwise_algorithms.estimators:remax",
                "less the reward of a greedy episode (arXiv 2310.10505)",
            ),
            "counterfactual": (
                "turnwise_algorithms.estimators:counterfactual",
                "how much each turn changed the mean reward of playing on; unbiased",
            ),
            "hca": (
                "turnwise_algorithms.hindsight:hca",
                "return times 1 - pi/h, h the turn's probability given the outcome "
                "(Harutyunyan 2019)",
            ),
            "hcapo": (
                "turnwise_algorithms.hindsight:hcapo",
                "the group's z-score plus that of turns weighted by hindsight (arXiv 2603.08754)",
            ),
            "process_rloo": (
                "turnwise_algorithms.estimators:process_rloo",
                "rewards per token and outcomes, each less the others' (arXiv 2502.01456)",
            ),
            "information_gain": (
                "turnwise_algorithms.estimators:information_gain",
                "by how much each turn made the right answer likelier, and outcomes, z-scored "
                "in the group and summed backwards (arXiv 2510.14967)",
            ),
            "distillation": (
                "turnwise_algorithms.estimators:distillation",
                "log teacher - log policy of each token (arXiv 2306.13649)",
            ),
        },
        "rollout": {
            "greedy": (
                "turnwise_algorithms.branching:greedy",
                "and one at temperature 0 beside each group (arXiv 2310.10505)",
            ),
            "turn_replays": (
                "turnwise_algorithms.branching:turn_replays",
                "so many others beside each episode from before each of its turns",
            ),
            "random_branches": (
                "turnwise_algorithms.tree_rollouts:random_branches",
                "trees that branch at random turns (arXiv 2509.21240)",
            ),
            "entropy_branches": (
                "turnwise_algorithms.tree_rollouts:entropy_branches",
                "branches after tool results that made the policy less certain (arXiv 2507.19849)",
            ),
        },
        "signal": {
            "hindsight": (
                "turnwise_algorithms.signals.hindsight:HindsightMaker",
                "log-probabilities of turns given the outcome",
            ),
            "information_gain": (
                "turnwise_algorithms.signals.information_gain:InformationGainMaker",
                "by how much turns made the right answer likelier",
            ),
            "process_rewards": (
                "turnwise_algorithms.signals.implicit_reward:ImplicitRewardMaker",
                "rewards per token of an implicit reward model",
            ),
            "score_norms": (
                "turnwise_algorithms.signals.score_norms:ScoreNormsMaker",
                "norms of the scores of sampled tokens",
            ),
            "self_teacher": (
                "turnwise_algorithms.signals.self_teacher:SelfTeacherMaker",
                "the policy's average, shown a success",
            ),
            "teacher": (
                "turnwise_algorithms.signals.teacher:TeacherMaker",
                "log-probabilities under another model",
            ),
        },
    }
)
