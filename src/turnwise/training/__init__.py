"""A run: a list of stages, each a file.

    run.py           the list, and the loop over it
    cold_start.py    supervised learning on demonstrations
    reinforcement.py RL: sample, measure, learn, record
    imitation.py     the supervised run that RL is compared with
    evaluations.py   one episode on each held-out task

Wings add stages of their own (`Wing.stages`).
"""
