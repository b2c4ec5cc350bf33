"""Choices that cannot all be honoured: each names its needs, and what it denies others.

    Claim("evaluation.during_rl", needs=(Need.STILL_POLICY,))
    Claim("train.max_staleness = 1", denies={Need.STILL_POLICY: "samples while it learns"})

are one sentence about the two, neither of which knows the other. Sections of a recipe, parts of an
algorithm, environments and wings make claims. A need is any text: a wing that needs what is not
among `Need` words it itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from turnwise.errors import ConfigError


class Need:
    """The needs that several parts have, in the words of the sentences."""

    ADAPTERS = "a model with adapters"
    BASE_MODEL = "servers that keep the base model in memory"
    FIRST_GPU = "servers on the first learner's own GPU"
    FIXED_REWARD = "a reward that stays as it is"
    FREE_SAMPLING = "sampling in which no episode waits for another"
    GROUPS_LEFT_OUT = "a group_filter that leaves groups out"
    IMAGES = "a policy that is shown images"
    INPUTS_KEPT = "the inputs of layers that gradient_checkpointing keeps"
    MIN_P_LAST = "min_p that is applied after top_p"
    KL_PENALTY = "rewards that a KL penalty is taken off"
    NAMED_REWARDS = "the named parts of a reward"
    OBSERVATIONS = "observations that no other term trains"
    ONE_CONTEXT = "episodes of one context each"
    ONE_LEARNER = "a learner in one process"
    ONE_PASS = "layers that are computed once"
    OWN_GPUS = "servers with GPUs of their own"
    OWN_LOOP = "turnwise's own agent loop"
    OWN_PROCESS = "episodes played in the process of the run"
    PLAIN_ROWS = "rows of tokens that follow one another"
    PLAIN_SUM = "token losses that are added up (sequence_mean_token_sum)"
    POLICY_LOSS = "a policy loss"
    RESTORABLE = "episodes that go on from the middle"
    REWARDS_0_AND_1 = "rewards of 0 and 1"
    REWARDS_ALONE = "advantages of the rewards alone"
    REWARDS_FROM_0 = "rewards of 0 and more"
    SAMPLED_PROBABILITIES = "the probabilities that tokens were drawn with"
    SECOND_MODEL = "the place of the second model"
    SERVERS = "servers of vLLM"
    SERVERS_HERE = "servers on this machine"
    SHAPED_REWARDS = "rewards that a penalty is taken off"
    SINGLE_REWARDS = "rewards of single episodes"
    SPARE_EPISODES = "episodes that can be done without"
    STARTED_SERVERS = "servers that the run starts"
    STEPS_OF_RL = "steps of RL"
    STILL_POLICY = "a policy that stands still while episodes are played"
    SUMMED_REWARD = "a reward that is added up with the recipe's weights"
    TASK_EPISODES = "episodes of tasks"
    TOKENS = "a policy whose tokens are sampled here"
    TURNS_UNDER_WAY = "turns under way while weights change"
    WHOLE_BATCH = "all episodes of the batch"
    WHOLE_ROWS = "rows that are computed whole"
    WHOLE_VOCABULARY = "tokens sampled from the whole vocabulary"
    WORDS = "observations in words"


@dataclass(frozen=True)
class Claim:
    """A choice that was made, and its demands."""

    setting: str
    """The choice, as a reader finds it: "train.oversample = 1"."""
    needs: tuple[str, ...] = ()
    """The conditions under which it can be honoured."""
    denies: Mapping[str, str] = field(default_factory=dict)
    """The conditions that it makes impossible, each with a reason that follows the setting in a
    sentence: "samples while it learns"."""
    remedy: str = ""
    """The way to be without it: "set train.oversample=0"."""


def conflicts(claims: Iterable[Claim]) -> Iterator[str]:
    """Compare needs with denials: a sentence that says what to do for each pair that differs."""
    known = list(claims)
    for wanting in known:
        for need in wanting.needs:
            for denying in known:
                if need in denying.denies and denying is not wanting:
                    yield _sentence(wanting, need, denying)


def check(claims: Iterable[Claim]) -> None:
    """Raise ConfigError with the first conflict, if there is one."""
    for sentence in conflicts(claims):
        raise ConfigError(sentence)


def _sentence(wanting: Claim, need: str, denying: Claim) -> str:
    remedies = [one.remedy for one in (denying, wanting) if one.remedy]
    if len(remedies) == 1:
        remedies.append("leave the other out")
    what = ", or ".join(remedies) or "leave one of the two out"
    reason = denying.denies[need]
    return f"{wanting.setting} needs {need}, and {denying.setting} {reason}: {what}"
