"""A run: a list of stages, each a file.

    run.py           the list, and the loop over it
    cold_start.py    supervised learning on demonstrations
    reinforcement.py RL: sample, measure, learn, record
    imitation.py     the supervised run that RL is compared with
    evaluations.py   one episode on each held-out task

Not here: how episodes are played (`rollout`), what an update computes (`learning`), and the stages
that wings add (`Wing.stages`).
"""
