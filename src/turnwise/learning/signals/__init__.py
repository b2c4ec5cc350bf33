"""Measurements of judged trajectories: one signal per file, returned as plain data.

Not here: what is made of the measurements (`credits`, `turnwise.algorithms`).
"""
