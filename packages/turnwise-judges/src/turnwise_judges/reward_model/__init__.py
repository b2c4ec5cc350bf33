"""Reward models: learned from verdicts or pairs of episodes, a part of the reward."""
