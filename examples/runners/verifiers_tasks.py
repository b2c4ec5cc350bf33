"""Tasksets of verifiers (its v1), played as their authors run them: by its rollout, with its
harness, tool servers, users and judges. The policy is their model, their rubric's sum the reward.

`env` is the table that `vf-eval` reads, `select` its choice of tasks.
"""

import json
import logging
import random
from functools import cache

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from turnwise import Environment, Task


@cache
def loaded(env, select):
    """An environment's config, and its tasks by their keys; both tables are JSON."""
    config = resolve_env_config(json.loads(env))
    tasks = load_environment(config).taskset.select(vf.SelectConfig(**json.loads(select)))
    return config, {task.key: task for task in tasks}


class Tasks(Environment):
    def __init__(self, env, select=(), heldout_share=0.2):
        data = {"env": json.dumps(env), "select": json.dumps(dict(select))}
        tasks = loaded(**data)[1].items()
        made = [Task(key, one.data.prompt_text or key, data=data) for key, one in tasks]
        random.Random(0).shuffle(made)
        border = round(heldout_share * len(made))
        self.splits = {"heldout": made[:border], "train": made[border:]}

    def tasks(self, split):
        return self.splits[split]


async def run(task, model):
    config, tasks = loaded(**task.data)
    env, client = load_environment(config), vf.EvalClientConfig(base_url=model.base_url)
    async with env.serving():
        episode = await env.run_episode(tasks[task.id], vf.ModelContext(model.name, client))
    if not episode.ok:  # not the policy's fault, unless it has spent a budget: no reward
        logging.warning("%s", [*episode.errors, *(one.errors for one in episode.traces)])
        return None
    trained = [one for one in episode.traces if one.agent.trainable]
    parts = {name: one.score for trace in trained for name, one in trace.rewards.items() if one}
    return {"reward": sum(one.reward for one in trained) / len(trained), "parts": parts}
