"""The wing: the command `judge`, the sections `judge` and `reward_model`, and their stages."""

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
