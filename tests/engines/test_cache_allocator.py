"""Who has which part of the cache: bookkeeping alone, against a model of the places."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from turnwise.engines.base import Sampling
from turnwise.engines.cache_allocator import ROOM, SHORTEST, CacheAllocator
from turnwise.engines.sampling import StopMatcher
from turnwise.engines.sessions import Request, Session

LONGEST = 500


class Places:
    """What stands in every place, moved as the cache moves it."""

    def __init__(self, tokens: int) -> None:
        self.names: list[str | None] = [None] * tokens
        self.moves = 0

    def move(self, moves: Sequence[tuple[int, int, int]]) -> None:
        pieces = [self.names[source : source + length] for source, _, length in moves]
        for (_, target, _), piece in zip(moves, pieces, strict=True):
            self.names[target : target + len(piece)] = piece
        self.moves += 1

    def fill(self, request: Request) -> None:
        """The whole history is computed."""
        run, request.session.length = request.run, request.known
        self.names[run.start : run.start + request.known] = [request.session.name] * request.known

    def holds(self, session: Session) -> bool:
        """Whether what is cached of the session is in its run."""
        if session.run is None:
            return session.length == 0
        start = session.run.start
        return self.names[start : start + session.length] == [session.name] * session.length


def request(name: str, known: int, may_sample: int = 200) -> Request:
    """A request whose prompt has so many tokens, in a session of its own."""
    session = Session(name, np.zeros(LONGEST, np.int64))
    draws = np.zeros(min(may_sample, LONGEST - known))
    nothing: Any = None
    made = Request(session, known, Sampling(1), draws, StopMatcher((), nothing), nothing)
    session.request = made
    return made


def sized(known: int, may_sample: int = 200, whole_turns: bool = False) -> int:
    """Places of the run that a history of so many tokens gets."""
    budget = CacheAllocator(LONGEST, 2, LONGEST, lambda moves: None, whole_turns)
    (seated,) = budget.seat([request("a", known, may_sample)], 1)
    return seated.run.size


def test_a_run_has_little_more_room_than_its_history_needs() -> None:
    assert sized(1) == SHORTEST
    assert [sized(SHORTEST - ROOM), sized(SHORTEST - ROOM + 1)] == [64, 96]
    assert [sized(64), sized(65), sized(96), sized(97), sized(200)] == [96, 128, 128, 192, 256]
    assert [sized(120, may_sample=8), sized(120, may_sample=9)] == [128, 192]
    assert sized(400) == LONGEST
    assert [sized(20, 44, whole_turns=True), sized(20, 45, whole_turns=True)] == [64, 96]
    assert sized(20, 600, whole_turns=True) == LONGEST
    for known in range(1, LONGEST):
        assert known <= sized(known) <= max(SHORTEST, 1.5 * (known + ROOM))


def test_nothing_moves_where_all_have_room_at_their_longest() -> None:
    places = Places(4 * LONGEST)
    budget = CacheAllocator(4 * LONGEST, 4, LONGEST, places.move)
    waiting = [request(name, 20, may_sample=400) for name in "abcd"]
    assert budget.seat(waiting, 4) == waiting
    assert [one.run.size for one in waiting] == [LONGEST] * 4
    for one in waiting:
        places.fill(one)
        one.tokens = [0] * 400
    assert budget.grow(waiting, []) == []
    assert places.moves == 0


def test_whole_turns_find_room_when_they_are_admitted() -> None:
    """Though the run of the turn before would do for its first tokens."""
    places = Places(1000)
    budget = CacheAllocator(1000, 4, LONGEST, places.move, whole_turns=True)
    first, beside = request("a", 20, may_sample=40), request("b", 20, may_sample=40)
    budget.seat([first, beside], 4)
    places.fill(first)
    again = Request(first.session, 50, first.sampling, np.zeros(200), first.matcher, first.future)
    first.session.request = again
    assert budget.seat([again], 4) == [again]
    assert again.run.size == 256
    assert places.holds(first.session)
    again.tokens = [0] * 200
    assert budget.grow([again, beside], []) == []
    assert again.run.size == 256


def test_admission_ends_where_the_budget_does() -> None:
    budget = CacheAllocator(500, 8, LONGEST, lambda moves: None)
    waiting = [request(name, 150) for name in "abcd"]
    assert budget.seat(waiting, 8) == waiting[:2]
    assert budget.used == 2 * 192
    assert budget.seat(waiting[2:], 8) == []
    assert budget.evictions == 0


def test_the_longest_idle_session_gives_way_then_the_last_in_the_queue() -> None:
    budget = CacheAllocator(600, 8, LONGEST, lambda moves: None)
    first, second, third = (request(name, 150) for name in "abc")
    assert budget.seat([first, second, third], 8) == [first, second, third]
    for ended in (second, first):
        ended.session.request = None
    new = request("d", 150)
    assert budget.seat([new], 8) == [new]
    assert first.session.run is None
    second.session.request = second
    last = request("e", 150)
    assert budget.seat([last, second], 8) == [last]
    assert second.session.run is None
    assert budget.evictions == 2


def test_who_came_first_goes_on_at_the_expense_of_the_last() -> None:
    places = Places(600)
    budget = CacheAllocator(600, 8, LONGEST, places.move)
    running = [request(name, 150) for name in "abc"]
    assert budget.seat(running, 8) == running
    for one in running:
        places.fill(one)
        one.tokens = [0] * 60
    assert budget.grow(running, []) == [running[2]]
    assert [one.session.run is None for one in running] == [False, False, True]
    assert all(one.run.size >= one.known for one in running[:2])
    assert all(places.holds(one.session) for one in running)


def test_one_trajectory_always_fits() -> None:
    """However the others lie, the first grows to the longest history there is."""
    places = Places(LONGEST)
    budget = CacheAllocator(LONGEST, 8, LONGEST, places.move)
    running = [request(name, 40, may_sample=460) for name in "abcdefg"]
    running = budget.seat(running, 8)
    for one in running:
        places.fill(one)
    running = running[3:] + running[:3]
    while running[0].known < LONGEST:
        for one in running:
            one.tokens.append(0)
        back = budget.grow(running, [])
        running = [one for one in running if one not in back]
        for one in running:
            assert places.holds(one.session)
            places.fill(one)
    assert running[0].run.size == LONGEST


@pytest.mark.parametrize("seed", range(5))
def test_no_two_sessions_share_a_place_and_nothing_is_lost(seed: int) -> None:
    """Sessions come, sample, pause and go at random."""
    dice = random.Random(seed)
    places = Places(1500)
    budget = CacheAllocator(1500, 10, LONGEST, places.move)
    waiting: list[Request] = []
    running: list[Request] = []
    paused: list[Request] = []
    admitted = 0
    for step in range(400):
        if len(waiting) + len(running) + len(paused) < 16:
            waiting.append(request(str(step), dice.randrange(20, 200)))
        if paused and dice.random() < 0.5:
            again = paused.pop(dice.randrange(len(paused)))
            again.session.request = again
            waiting.append(again)
        seated = budget.seat(waiting, 10 - len(running))
        admitted += len(seated)
        waiting, running = waiting[len(seated) :], running + seated
        back = budget.grow(running, waiting)
        waiting, running = back + waiting, [one for one in running if one not in back]
        budget.tidy(running)
        for one in running:
            assert one.run.size >= one.known
            places.fill(one)
            one.tokens += [0] * min(dice.randrange(1, 30), len(one.draws) - len(one.tokens))
        for one in list(running):
            if len(one.tokens) >= len(one.draws) or dice.random() < 0.1:
                running.remove(one)
                one.session.request = None
                if len(one.tokens) < len(one.draws) and dice.random() < 0.7:
                    paused.append(one)
                else:
                    budget.free(one.session)
        seats = [one.session for one in waiting + running + paused if one.session.run is not None]
        assert len(seats) <= 10
        assert all(map(places.holds, seats))
        ordered = sorted(session.run for session in seats if session.run is not None)
        for run, after in pairwise(ordered):
            assert run.end <= after.start
        assert not ordered or ordered[-1].end <= 1500
        assert budget.used == sum(run.size for run in ordered)
    assert admitted > 100
    assert budget.evictions > 10
    assert places.moves > 10


def test_scattered_sessions_of_one_size_are_brought_together() -> None:
    places = Places(4000)
    budget = CacheAllocator(4000, 20, LONGEST, places.move)
    sizes = [100, 20] * 8
    running = [request(str(index), size, 8) for index, size in enumerate(sizes)]
    budget.seat(running, 20)
    for one in running:
        places.fill(one)
    budget.tidy(running)
    ordered = sorted(running, key=lambda one: one.run.start)
    assert [one.run.size for one in ordered] == [64] * 8 + [128] * 8
    assert all(places.holds(one.session) for one in running)
    before = places.moves
    budget.tidy(running)
    assert places.moves == before
