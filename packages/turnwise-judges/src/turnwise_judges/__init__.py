"""Judges: language models that score episodes, for rewards, evaluation and preference pairs; and
what learns from judgements: reward models, and policies from pairs.

What a judge does not say in the strict form of an answer is missing, never a number.
"""
