"""Plays one task of Harbor as a trial of Harbor's own: a program, in an environment with Harbor.

The task's data has `folder`, where folders of tasks are, and `trial`, Harbor's table of a trial:
its agent, its environment. The policy is the agent's model, the reward the verifier's.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

from harbor.models.trial.config import TrialConfig
from harbor.trial.trial import Trial

POLICY = {"model_name": "openai/policy", "base_url": os.environ["OPENAI_BASE_URL"]}


async def play(config):
    trial = await Trial.create(TrialConfig.model_validate(config))
    return await trial.run()


task = json.loads(os.environ["TURNWISE_TASK"])
config = {"agent": {"name": "terminus-2"}, **task["data"].get("trial", {})}
config["agent"] = POLICY | config["agent"]
config["task"] = {"path": Path(task["data"]["folder"]) / task["id"]}
with tempfile.TemporaryDirectory() as folder:
    played = asyncio.run(play({"trials_dir": folder} | config))
if played.reward_valid:
    rewards = played.verifier_result.rewards
    reward = rewards.get("reward", sum(rewards.values()) / len(rewards))
    verdict = json.dumps({"reward": reward, "parts": rewards}).encode()
    urlopen(Request(f"{os.environ['TURNWISE_GATEWAY']}/reward", verdict))
elif not any(one.agent_execution for one in [played, *(played.step_results or [])]):
    sys.exit(played.exception_info.exception_message)  # the policy was not asked
