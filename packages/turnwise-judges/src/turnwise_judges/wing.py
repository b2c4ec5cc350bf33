"""The wing: the command `judge`, the sections `judge` and `reward_model`, and their stages."""

from turnwise.wings import Wing

WING = Wing(
    commands={"judge": "turnwise_judges.command:judge"},
    settings={
        "judge": "turnwise_judges.settings:AnyJudgeConfig",
        "preferences": "turnwise_judges.settings:PreferencesConfig",
        "reward_model": "turnwise_judges.settings:RewardModelConfig",
    },
    sections={
        "judge": "turnwise_judges.section:with_judge",
        "reward_model": "turnwise_judges.reward_model.section:with_reward_model",
    },
    claims="turnwise_judges.settings:claims_of",
    stages={
        "preferences": ("turnwise_judges.preferences.stage:Preferences", "after RL"),
        "reward_model": ("turnwise_judges.reward_model.stage:RewardLearning", "first"),
    },
)
