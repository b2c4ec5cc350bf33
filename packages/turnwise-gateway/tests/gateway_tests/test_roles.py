"""Several roles of an agent: which tokens are trained, and the account of all others."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_tests.asking import PROMPT, limits, recorded, request, session, went_on
from gateway_tests.hashed_engine import HashedEngine, check_record
from tests.chat_server import serving
from turnwise.algorithms.registry import make_algorithm
from turnwise.chat.endpoint import ChatEndpoint, ChatTurn
from turnwise.config import load_recipe
from turnwise.engines.base import Completion
from turnwise.learning.batch import policy_examples
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.storage.run_folder import with_whole_paths
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict
from turnwise_gateway.requests import Message, RefusedError, Reply
from turnwise_gateway.roles import by_role
from turnwise_gateway.session import EndpointRole, Role, Session
from turnwise_gateway.settings import AgentConfig

CALLING = "<lookup> France</lookup>"


class Frozen(HashedEngine):
    """An engine whose tokens are known by their log-probabilities, all of them below -1."""

    async def generate(self, *given: Any, **others: Any) -> Completion:
        said = await super().generate(*given, **others)
        logprobs = [one - 1 for one in said.logprobs]
        return Completion(said.tokens, logprobs, said.stop_reason, said.version)


class Elsewhere(ChatEndpoint):
    """Another model, which says the same to everything."""

    async def ask_for_turn(self, body: Any) -> ChatTurn:
        self.body = body
        return ChatTurn("Elsewhere.", written=3)


def elsewhere() -> EndpointRole:
    return EndpointRole(Elsewhere("http://127.0.0.1:1/v1", "the other"), "other")


def behind(url: str, name: str = "m") -> EndpointRole:
    return EndpointRole(ChatEndpoint(url, "role other", attempts=1), name)


async def said(own: Session, role: str, messages: tuple[Message, ...] = PROMPT) -> Reply:
    """A reply of a role, which arrives."""
    reply = await own.ask(request(messages, model=role))
    own.arrived(reply)
    return reply


def played(own: Session, verdict: Verdict, episode: int = 0) -> Trajectory:
    """The session's record as a judged episode."""
    tokens, turns, capture = own.record()
    return Trajectory(
        Task("t", "?"), "g", episode, 0, tokens, turns, Outcome.SUCCESS, verdict, capture=capture
    )


async def test_each_role_has_contexts_of_its_own_and_the_first_is_asked_by_default() -> None:
    own = session(HashedEngine([CALLING]), roles={"planner": None, "worker": None})
    first = await said(own, "planner")
    await said(own, "worker", went_on(PROMPT, first, "It is Paris."))
    assert (await said(own, "")).model == "planner"
    tokens, turns, capture = recorded(own)
    assert len(tokens.spans) == 3
    assert [turn.role for turn in turns] == ["planner", "worker", "planner"]
    count = len(first.choices[0].text) or len(CALLING)
    assert capture.roles == {
        "planner": {"calls": 2, "sampled": 2 * count, "undelivered": 0},
        "worker": {"calls": 1, "sampled": count, "undelivered": 0},
    }
    with pytest.raises(RefusedError, match="no model 'policy': there is 'planner', 'worker'"):
        await said(own, "policy")


async def test_roles_that_ask_the_same_are_answered_by_random_numbers_of_their_own() -> None:
    own = session(roles=dict.fromkeys("abcdefgh"))
    replies = [await said(own, name) for name in "abcdefgh"]
    assert len({repr(reply.choices[0].text) for reply in replies}) > 1


async def test_frozen_roles_and_endpoints_are_in_the_account_and_not_in_the_tokens() -> None:
    roles = {"planner": None, "judge": Frozen(), "other": elsewhere()}
    own = session(HashedEngine([CALLING]), roles=roles)
    await said(own, "planner")
    judged = await said(own, "judge")
    await said(own, "judge", went_on(PROMPT, judged, "Sure?"))
    reply = await said(own, "other")
    assert reply.choices[0].text == "Elsewhere."
    tokens, turns, capture = own.record()
    assert [turn.role for turn in turns] == ["planner"]
    assert (tokens.logprob[tokens.mask] > -1).all()
    sampled = capture.roles["judge"]["sampled"]
    assert capture.roles["judge"] == {"calls": 2, "sampled": sampled, "frozen": sampled}
    assert capture.roles["other"] == {"calls": 1, "sampled": 3, "endpoint": 3}
    assert capture.dropped == {"frozen": sampled, "endpoint": 3}
    assert capture.trained == int(tokens.mask.sum())
    assert capture.coverage == capture.coverage_of("planner") == 1.0
    assert roles["judge"].open_sessions == set()
    with pytest.raises(RefusedError, match="no reply"):
        own.reward_reply(judged.id, 1.0)


async def test_budgets_count_the_replies_of_all_roles() -> None:
    roles = {"planner": None, "judge": Frozen(), "other": elsewhere()}
    own = session(limits=limits(max_turns=3), roles=roles)
    for role in roles:
        await said(own, role)
    for role in roles:
        with pytest.raises(RefusedError, match=r"rollout\.max_turns = 3"):
            await said(own, role)
    assert own.limit is Outcome.TRUNCATED_TURNS


async def test_a_lost_reply_is_in_the_account_of_its_role() -> None:
    own = session(HashedEngine([CALLING]), roles={"planner": None, "worker": None})
    await said(own, "planner")
    await own.ask(request(model="worker"))
    capture = own.record()[2]
    assert capture.coverage_of("planner") == 1.0
    assert capture.coverage_of("worker") == 0.0
    assert capture.coverage == 0.5


async def test_an_endpoint_gets_the_conversation_and_its_calls_come_back() -> None:
    function = {"name": "lookup", "arguments": '{"country": "Italy"}'}
    calls = [{"id": "c9", "type": "function", "function": function}]

    def words(body: dict[str, Any], number: int) -> dict[str, Any]:
        broken = [{**calls[0], "function": {**function, "arguments": "{"}}]
        return {"role": "assistant", "content": None, "tool_calls": calls if number < 3 else broken}

    with serving(words) as server:
        own = session(roles={"planner": None, "other": behind(server.url, "model-x")})
        first = await said(own, "other", (Message("system", "Be brief."), *PROMPT))
        talk = went_on(PROMPT, first, "It is Rome.")
        await said(own, "other", talk)
        broken = await said(own, "other", talk)
    assert first.choices[0].calls[0].arguments == {"country": "Italy"}
    assert first.choices[0].ending == "calls"
    assert "tool_calls" not in repr(broken.choices[0].calls)
    assert json.loads(broken.choices[0].text)[0]["id"] == "c9"
    begun, went = server.asked[0], server.asked[1]
    assert begun["model"] == "model-x"
    assert begun["messages"][0] == {"role": "system", "content": "Be brief."}
    assert begun["tools"][0]["function"]["name"] == "lookup"
    assert [one["role"] for one in went["messages"]] == ["user", "assistant", "tool"]
    assert went["messages"][1]["tool_calls"][0]["id"] == "c9"
    assert went["messages"][2]["tool_call_id"] == "c9"


async def test_an_endpoint_that_fails_leaves_the_episode_ungraded() -> None:
    with serving(lambda body, number: "Yes.") as server:
        server.failures = [401]
        own = session(roles={"planner": None, "other": behind(server.url)})
        with pytest.raises(RefusedError, match=r"role other at .*: 401") as refused:
            await said(own, "other")
    assert refused.value.status == 503
    assert own.failure


async def test_what_an_endpoint_refuses_is_the_agent_s_doing_once_it_has_answered() -> None:
    with serving(lambda body, number: "Yes.") as server:
        own = session(roles={"planner": None, "other": behind(server.url)})
        await said(own, "other")
        server.failures = [400]
        with pytest.raises(RefusedError) as refused:
            await said(own, "other")
    assert (refused.value.status, refused.value.field, own.failure) == (400, "messages", "")


def test_a_role_gets_a_reward_of_its_own_where_credit_is_by_role() -> None:
    roles: dict[str, Role] = {"planner": None, "judge": Frozen()}
    own = session(roles=roles, credit_by_role=True)
    own.reward_role("planner", 0.25)
    assert own.role_rewards == {"planner": 0.25}
    with pytest.raises(RefusedError, match="no trained role 'judge': 'planner'"):
        own.reward_role("judge", 1.0)
    with pytest.raises(RefusedError, match=r'agent\.credit = "role"'):
        session(roles=roles).reward_role("planner", 1.0)
    with pytest.raises(RefusedError, match=r"agent\.roles names none"):
        session().reward_role("planner", 1.0)
    own.rewarded(Verdict(1.0, True))
    assert own.reward is not None


def episodes(rewards: list[dict[str, float]], roles: dict[str, Role]) -> Group:
    """A group of episodes in which each trained role speaks twice."""

    async def work(number: int, given: dict[str, float]) -> Trajectory:
        own = session(roles=roles, seed=number)
        for name in given:
            await said(own, name, went_on(PROMPT, await said(own, name), "Go on."))
        return played(own, Verdict(0.0, False, roles=given), number)

    return Group("g", tuple(asyncio.run(work(n, given)) for n, given in enumerate(rewards)))


def test_roles_are_compared_with_the_same_role_of_other_episodes() -> None:
    rewards = [{"planner": 1.0, "worker": 0.0}, {"planner": 0.0, "worker": 0.5}, {"worker": 1.0}]
    group = episodes(rewards, {"planner": None, "worker": None})
    planner, worker = by_role([group])
    assert (planner.id, worker.id) == ("g@planner", "g@worker")
    assert [one.reward for one in planner.trajectories] == [1.0, 0.0]
    assert [one.reward for one in worker.trajectories] == [0.0, 0.5, 1.0]
    assert [one.episode for one in planner.trajectories] == [0, 1]
    credits = estimate([planner, worker], Signals(), make_algorithm("dr_grpo", {}))
    for one, advantage in zip(worker.trajectories, [-0.5, 0.0, 0.5], strict=True):
        found = credits.advantages[one.id][one.tokens.mask]
        np.testing.assert_allclose(found, advantage)
        assert len(one.turns) == 2
        assert one.tokens.turn[one.tokens.mask].tolist() == sorted(
            one.tokens.turn[one.tokens.mask].tolist()
        )
        assert set(one.tokens.turn.tolist()) == {0, 1}
        check_record(one.tokens)


def test_groups_without_roles_stay_as_they_are() -> None:
    async def work() -> Trajectory:
        own = session()
        await said(own, "policy")
        return played(own, Verdict(1.0, True))

    group = Group("g", (asyncio.run(work()),))
    assert by_role([group]) == [group]


async def at_random(own: Session, stream: random.Random) -> None:
    """Requests of any role, after any conversation, some at a time, some of them lost."""
    talks: list[tuple[Message, ...]] = [PROMPT]
    for _ in range(stream.randint(1, 10)):
        talk = stream.choice(talks)
        count = stream.choice([1, 1, 2])
        roles = stream.sample(own.names, stream.randint(1, len(own.names)))
        asked = (own.ask(request(talk, model=role, count=count)) for role in roles)
        for reply in await asyncio.gather(*asked):
            if stream.random() < 0.8:
                own.arrived(reply)
                talks.append(went_on(talk, reply, stream.choice(["Hm.", "It is Paris."])))


@pytest.mark.long
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["trained", "frozen", "endpoint"]), min_size=0, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_each_token_of_trained_roles_is_in_the_batch_once_and_no_other(
    seed: int, others: list[str]
) -> None:
    stream = random.Random(seed)
    policies = ["trained", *others]
    stream.shuffle(policies)
    made = {"trained": lambda: None, "frozen": Frozen, "endpoint": elsewhere}
    roles: dict[str, Role] = {f"r{n}": made[one]() for n, one in enumerate(policies)}

    async def work() -> tuple[Session, Trajectory]:
        own = session(limits=limits(max_tokens=5000, max_turns=200), roles=roles, seed=seed)
        await at_random(own, stream)
        return own, played(own, Verdict(1.0, True, roles={"r0": 2.0}))

    own, whole = asyncio.run(work())
    groups = by_role([Group("g", (whole,))])
    algorithm = make_algorithm("reinforce", {})
    credits = estimate(groups, Signals(), algorithm)
    examples = policy_examples(groups, credits, algorithm, mask_observations=True)
    trained = [one.behaviour_logprob[one.trained].tolist() for one in examples]
    delivered = [one for one in own.contexts.exchanges if one.action is not None and one.delivered]
    before = whole.tokens.logprob[whole.tokens.mask]
    assert sorted(p for row in trained for p in row) == sorted(before.tolist())
    assert len(before) == sum(len(one.written) for one in delivered)
    assert (before > -1).all()
    assert whole.capture.trained == len(before)
    for name, role in roles.items():
        counts = whole.capture.roles[name]
        own_tokens = sum(
            int(part.trajectories[0].tokens.mask.sum()) for part in groups if part.id == f"g@{name}"
        )
        assert own_tokens == (counts["sampled"] - counts["undelivered"] if role is None else 0)
        rewards = {part.trajectories[0].reward for part in groups if part.id == f"g@{name}"}
        assert rewards <= {2.0 if name == "r0" else 1.0}
    for one in groups:
        for member in one.trajectories:
            if len(member.turns):
                check_record(member.tokens)


def test_the_checkpoint_of_a_frozen_role_is_found_again_from_anywhere() -> None:
    place = "runs/a/checkpoints/step-000001"
    judge = f'agent.roles.judge.policy={{kind="frozen", checkpoint="{place}"}}'
    loaded = load_recipe("demo", ["agent=agents.py:run", "agent.roles.planner={}", judge])
    agent = with_whole_paths(loaded).find(AgentConfig)
    assert agent.roles["judge"].policy.checkpoint == str(Path(place).resolve())
    assert with_whole_paths(load_recipe("demo")).find(AgentConfig) is None
