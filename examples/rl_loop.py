"""The whole of reinforcement learning for an agent, on one page and from the public API alone.

    tasks -> sample groups -> estimate advantages -> update the policy -> new weights to the engine
      ^------------------------------------------------------------------------------------------'

A small model that has never seen a question learns to look something up before it answers. Takes
less than a minute on one core: `python examples/rl_loop.py`, or with a number of steps.
"""

import sys
from statistics import fmean

import turnwise
from turnwise import Environment, Source, Task, Verdict, tool

TRAIN = {"TarFile": "tarfile", "Path": "pathlib", "Thread": "threading", "Fraction": "fractions"}
HELDOUT = {"Queue": "queue", "Random": "random", "ZipFile": "zipfile", "Decimal": "decimal"}


# 1. An environment: tasks, tools, and a verdict on what the agent did. An instance is one episode.
class Shelf(Environment):
    def tasks(self, split):
        names = TRAIN if split == "train" else HELDOUT
        return [Task(name, f"Which module defines the class {name}?") for name in names]

    @tool
    def search(self, query: str) -> str:
        """Look a class up."""
        cards = {name: f"Class {name}. Module: {home}." for name, home in (TRAIN | HELDOUT).items()}
        return "\n".join(card for name, card in cards.items() if name in query) or "Nothing."

    async def verify(self, trajectory):
        # An answer ends the episode, so who has done both has searched first. Each part has a
        # reward of its own: the model does one of them by chance, now and then, but never both.
        searched, answered = trajectory.tool_calls > 0, trajectory.answer is not None
        reward = 0.5 * searched + 0.5 * answered
        return Verdict(reward, success=searched and answered)


# 2. A recipe says what everything else is; what it leaves out has a default.
RECIPE = {
    "name": "rl_loop",
    "threads": 1,
    "environment": {"name": f"{__file__}:Shelf"},
    "model": {"name": "tiny"},  # 2.2 million weights; it comes with turnwise
    "scaffold": {"options": {"instructions": ""}},  # how turns are written as tokens: tags
    "algorithm": {"name": "grpo"},  # an advantage is a z-score within the group
    "rollout": {"max_turns": 3, "max_turn_tokens": 16, "max_tokens": 160},
    "learning": {"learning_rate": 1e-3},
    "train": {"tasks_per_step": 4, "group_size": 8},
    "evaluation": {"tasks": 4},
}


def main(steps: int = 25) -> list[float]:
    """Train for some steps; returns each step's mean reward."""
    # 3. The parts: environment, model, tokenizer, scaffold, engine; and what updates the model.
    parts = turnwise.build(RECIPE)
    learner = turnwise.make_learner(parts)
    rewards = []
    for step in range(steps):
        # 4. Sample: every task is played by a group of 8 episodes, with the weights of version
        # `step`. An episode is a trajectory, one flat record of tokens.
        groups = turnwise.sample_groups(parts, step=step)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        if step == 0:
            show(trajectories[0].tokens, parts.tokenizer)

        # 5. Estimate: one number for each token, how much better its episode was than its group.
        credits = turnwise.estimate(parts, learner, groups)

        # 6. Update: make sampled tokens with a positive advantage more likely, the others less.
        # Tokens that the model did not write are read and never trained: that is the mask.
        learner.update(groups, credits)

        # 7. New weights to the engine: the next tokens are sampled by version step + 1.
        turnwise.load_weights(parts, version=step + 1)

        rewards.append(fmean(trajectory.reward for trajectory in trajectories))
        if step % 5 == 0 or step == steps - 1:
            print(f"step {step:3}  reward {rewards[-1]:.2f}  {'#' * round(40 * rewards[-1])}")

    # 8. Evaluate on tasks that were not trained on.
    summary = turnwise.evaluate(parts, progress=False)
    print(f"held out: success {summary['success']:.0%} of {summary['n']}")
    turnwise.close(parts)
    return rewards


def show(tokens, tokenizer, count: int = 40) -> None:
    """Print the first tokens of an episode: who wrote each, whether it is trained, what it is."""
    print("source       trained  log p  token")
    for source, trained, logprob, token in list(
        zip(tokens.source, tokens.mask, tokens.logprob, tokens.ids, strict=True)
    )[:count]:
        said = f"{logprob:6.2f}" if trained else "      "
        mark = "yes" if trained else "no"
        print(f"{Source(source).name:<12} {mark:<7} {said}  {tokenizer.decode([token])!r}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
