"""The wing: algorithms, their parts, and the signals that they need."""

from turnwise.wings import Wing


def _of(module: str, **words: str) -> dict[str, tuple[str, str]]:
    """Where functions of a module are, by their own names, and what each does."""
    return {name: (f"turnwise_algorithms.{module}:{name}", own) for name, own in words.items()}


ROWS = {
    "otb": "arXiv 2602.07078",
    "distillation": "arXiv 2306.13649",
    "sdpo": "arXiv 2601.20802",
    "hero": "arXiv 2606.11559",
    "igpo": "arXiv 2510.14967",
    "prime": "arXiv 2502.01456",
    "remax": "arXiv 2310.10505",
    "tree_grpo": "arXiv 2509.21240",
    "arpo": "arXiv 2507.19849",
    "arpo_soft": "arXiv 2507.19849",
    "counterfactual": "re-rolls of every turn",
    "hca": "Harutyunyan 2019",
    "hcapo": "arXiv 2603.08754",
    "mt_grpo": "arXiv 2505.11821v1",
    "gigpo": "arXiv 2505.10978",
    "ipo": "prime-rl 0.9",
    "kpop": "KPop of Ant Group, 2026",
    "score_centering": "arXiv 2609.20807",
    "fresh_replay": "arXiv 2604.16918",
    "paw": "arXiv 2606.02388",
    "mipu": "arXiv 2606.29526",
}
SIGNALS = {
    "acceptance": ("acceptance:AcceptanceMaker", "what the sampler makes of the last update"),
    "feedback_teacher": (
        "feedback_teacher:FeedbackTeacherMaker",
        "the policy's average, shown a reply",
    ),
    "hindsight": ("hindsight:HindsightMaker", "log-probabilities of turns given the outcome"),
    "information_gain": (
        "information_gain:InformationGainMaker",
        "by how much turns made the right answer likelier",
    ),
    "process_rewards": (
        "implicit_reward:ImplicitRewardMaker",
        "rewards per token of an implicit reward model",
    ),
    "replay": ("replay:ReplayMaker", "the trajectories of earlier steps"),
    "sampler": (
        "sampler:SamplerMaker",
        "the distributions that tokens were sampled from",
    ),
    "score_norms": ("score_norms:ScoreNormsMaker", "norms of the scores of sampled tokens"),
    "self_teacher": ("self_teacher:SelfTeacherMaker", "the policy's average, shown a success"),
    "teacher": ("teacher:TeacherMaker", "log-probabilities under another model"),
    "world_model": ("world_model:WorldModelMaker", "what actions brought"),
}
WING = Wing(
    parts={
        "algorithm": {
            name: (f"turnwise_algorithms.rows:{name.upper()}", source)
            for name, source in ROWS.items()
        },
        "estimator": _of(
            "trees",
            tree_grpo="z-score in the tree plus that in the group, over the path's length; shared "
            "turns have the sum (arXiv 2509.21240)",
            arpo="z-score in the group; shared turns have the mean of their branches (arXiv "
            "2507.19849)",
            arpo_soft="z-score in the group; shared turns have the sum (arXiv 2507.19849)",
        )
        | _of(
            "estimators",
            otb="less the mean at each token, weighted by summed score norms (arXiv 2602.07078)",
            remax="less the reward of a greedy episode (arXiv 2310.10505)",
            counterfactual="how much each turn changed the mean reward of playing on; unbiased",
            process_rloo="rewards per token and outcomes, each less the others' (arXiv 2502.01456)",
            information_gain="by how much each turn made the right answer likelier, and outcomes, "
            "z-scored in the group and summed backwards (arXiv 2510.14967)",
            distillation="log teacher - log policy of each token (arXiv 2306.13649)",
        )
        | _of(
            "hindsight",
            hca="return times 1 - pi/h, h the turn's probability given the outcome "
            "(Harutyunyan 2019)",
            hcapo="the group's z-score plus that of turns weighted by hindsight (arXiv 2603.08754)",
        )
        | _of(
            "turns",
            mt_grpo="turn rewards z-scored per turn index, outcomes in the group; biased if turn "
            "counts differ (arXiv 2505.11821v1)",
            gigpo="the group's z-score plus that among turns from the same state (arXiv "
            "2505.10978)",
        ),
        "extension": _of(
            "experience_replay",
            fresh_replay="the policy loss, without KL term and token filter, of earlier "
            "trajectories too, the fresh ones rather (arXiv 2604.16918)",
        )
        | _of(
            "world_modelling",
            world_model="what uncertain actions bring is predicted (arXiv 2606.02388)",
        )
        | _of(
            "acceptance",
            acceptance="updates that do not reach the sampler are undone (arXiv 2606.29526)",
        ),
        "objective": _of(
            "trust_regions",
            ipo="trust region in probability, whatever the advantage's sign (prime-rl 0.9)",
            kpop="trust region in binary divergence, both ways (KPop of Ant Group, 2026)",
        )
        | _of(
            "score_centering",
            centred="log-probability, less what the sampler expects of it (arXiv 2609.20807)",
        ),
        "rollout": _of(
            "branching",
            greedy="and one at temperature 0 beside each group (arXiv 2310.10505)",
            turn_replays="so many others beside each episode from before each of its turns",
        )
        | _of(
            "tree_rollouts",
            random_branches="trees that branch at random turns (arXiv 2509.21240)",
            entropy_branches="branches after tool results that made the policy less certain "
            "(arXiv 2507.19849)",
        ),
        "signal": {
            name: (f"turnwise_algorithms.signals.{place}", words)
            for name, (place, words) in SIGNALS.items()
        },
    }
)
