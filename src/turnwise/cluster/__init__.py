"""Processes beside the trainer's, on one machine or many.

The trainer is handed what they do for it. Not here: the loop (`training`).
"""
