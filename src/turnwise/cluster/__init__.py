"""Processes beside the trainer's, on one machine or many; their job files, and a plan of GPUs.

The trainer is handed what they do for it. Not here: the loop (`training`).
"""
