"""Calls in at a run with agent = "remote", and starts a program for each of its tasks:

    python examples/agents/remote.py http://127.0.0.1:8123 -- node examples/agents/fetch.mjs

The key is in TURNWISE_AGENT_KEY, as it is for the run. Start several at once, on any machines. A
program finds its task and the policy in its environment variables, as one that the run starts.
"""

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request


def call(url: str, method: str, key: str) -> tuple[int, bytes]:
    asked = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(asked, timeout=90) as reply:
        return reply.status, reply.read()


def main() -> None:
    server, _, *command = sys.argv[1:]
    key, played = os.environ["TURNWISE_AGENT_KEY"], 0
    while True:
        try:
            status, body = call(f"{server}/next?seconds=30", "GET", key)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                sys.exit(f"{server} refuses: {error.read().decode()}")
            break  # the run is ending
        except OSError:
            break  # the run has ended
        if status == 204:  # there is no task at the moment
            continue
        offer = json.loads(body)
        words = [part.replace("{prompt}", offer["task"]["prompt"]) for part in command]
        subprocess.run(words, env=os.environ | offer["variables"], check=False)
        with contextlib.suppress(OSError):  # it was late: the episode has ended before
            call(f"{offer['address']}/end", "POST", key)
        played += 1
    print(f"{played} tasks played")


main()
