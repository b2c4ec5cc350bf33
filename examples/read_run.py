"""Read a run's folder: the learning curve, outcomes by step, and the tokens of one trajectory.

`python examples/read_run.py runs/demo`. Tables are pyarrow's; nothing else is needed to read them.
"""

import sys
from collections import Counter

import turnwise
from turnwise import Source


def main(path: str) -> None:
    """Print what a person would look at first."""
    run = turnwise.open_run(path)
    print(f"{run.path}: {run.recipe().environment.name}, {run.recipe().algorithm.name}")

    for row in run.metrics().to_pylist():  # a row for each RL step
        print(f"step {row['step']:3}  {'#' * round(40 * row['reward/mean'])}")

    steps = [name for name in run.recorded if name.startswith("step-")]
    for name in (steps[0], steps[-1]):  # tables of trajectories
        outcomes = Counter(run.trajectories(name)["outcome"].to_pylist())
        print(name, dict(outcomes.most_common()))

    first = run.trajectories(steps[0]).slice(0, 1).to_pylist()[0]
    sampled = [source == Source.MODEL for source in first["source"]]
    print(f"{first['group']} #{first['episode']}: {sum(sampled)} of {len(sampled)} tokens sampled")
    for place, trained in enumerate(sampled):
        if trained:
            print(f"token {first['ids'][place]:5}  turn {first['turn'][place]}", end="  ")
            print(
                f"version {first['version'][place]}  log p {first['logprob'][place]:6.2f}", end=""
            )
            print(f"  advantage {first['advantage'][place]:5.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
