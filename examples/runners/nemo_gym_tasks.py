"""Rows of NeMo Gym, played by its own servers, which run already: an agent server asks the policy,
a resources server has the tools and the verdict. `agent` is the agent server's name, `head` where
the head server is; each row goes there with the policy's address (nemo_gym/responses_api_models).
"""

import json
import logging
from pathlib import Path

import httpx2

from turnwise import Environment, Task
from turnwise.errors import DataError


class Rows(Environment):
    def __init__(self, train, heldout, agent, head="http://127.0.0.1:11000"):
        self.files = {"train": train, "heldout": heldout}
        self.servers = {"agent": agent, "head": head}

    def tasks(self, split):
        rows = read(self.files[split])
        return [
            Task(f"{split}-{number}", prompt, data=self.servers | {"row": row})
            for number, (prompt, row) in enumerate(rows)
        ]


def read(file):
    """The rows of a file, each behind what it shows."""
    try:
        # No `splitlines`: within a row's texts there are other ends of lines, as of web pages.
        lines = Path(file).read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from None
    rows = [row_of(line, f"{file}, line {n}") for n, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise DataError(f"{file}: there are no rows in it")
    return rows


def row_of(line, where):
    try:
        row = json.loads(line)
        return shown(row), row
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"{where}: no row of NeMo Gym: {error!r}") from None


def shown(row):
    said = row["responses_create_params"]["input"]
    return said if isinstance(said, str) else str(said[-1]["content"])


async def run(task, model):
    row, head, agent = (task.data[name] for name in ("row", "head", "agent"))
    asked = dict(row["responses_create_params"])
    asked["metadata"] = (asked.get("metadata") or {}) | {"policy": model.base_url}
    async with httpx2.AsyncClient(timeout=None, trust_env=False) as client:
        servers = (await client.get(f"{head}/server_instances")).json()
        urls = {one["process_name"]: one["url"] for one in servers}
        if agent not in urls:
            raise ValueError(f"NeMo Gym has no server {agent!r} at {head}: {', '.join(urls)}")
        reply = await client.post(
            f"{urls[agent]}/run", json=row | {"responses_create_params": asked}
        )
    found = {"mask_sample": True, "failure_reason": reply.text} if reply.is_error else reply.json()
    if found.get("mask_sample"):  # not the policy's fault, unless it has spent a budget: no reward
        logging.warning("%s", found.get("failure_reason"))
        return None
    return {"reward": found["reward"], "parts": found.get("reward_components", {})}
