"""Plays one task of tau2-bench by tau2's own runner: a program, in an environment with tau2.

The policy is the agent's model, another role of the recipe the user's; the reward is tau2's.
"""

import json
import os
from urllib.request import Request, urlopen

from tau2.data_model.simulation import TextRunConfig
from tau2.runner import get_tasks, run_single_task

task = json.loads(os.environ["TURNWISE_TASK"])
domain = task["data"]["domain"]
models = {"llm_agent": "openai/policy", "llm_user": "openai/user"}
(theirs,) = get_tasks(domain, task_ids=[task["id"]])
found = run_single_task(TextRunConfig(domain=domain, **models), theirs).reward_info
parts = {f"tau2/{part.value}": reward for part, reward in (found.reward_breakdown or {}).items()}
verdict = json.dumps({"reward": found.reward, "parts": parts}).encode()
urlopen(Request(f"{os.environ['TURNWISE_GATEWAY']}/reward", verdict))
