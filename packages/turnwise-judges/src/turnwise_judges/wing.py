"""The wing: the command `judge`, the judge of the section `judge`, the reward model, and the stages
that learn from judgements."""

from turnwise.wings import Wing

WING = Wing(
    commands={"judge": "turnwise_judges.command:judge"},
    sections={
        "judge": "turnwise_judges.section:make_judge_of_run",
        "reward_model": "turnwise_judges.reward_model.section:make_reward_model",
    },
    stages={
        "preferences": ("turnwise_judges.preferences.stage:Preferences", "after RL"),
        "reward_model": ("turnwise_judges.reward_model.stage:RewardLearning", "first"),
    },
)
