"""The learners' rendezvous lets in who has the secret, and strangers hold nobody up."""

import pickle
import socket
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.processes import ipv6
from turnwise_cluster.learners import launcher
from turnwise_cluster.learners.launcher import Arrival, Rendezvous, send

RAN: list[str] = []


class Runs:
    """Says so when its pickle is read."""

    def __reduce__(self) -> Any:
        return RAN.append, ("stranger",)


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=ipv6)])
def test_strangers_are_not_let_in_and_hold_nobody_up(host: str) -> None:
    rendezvous = Rendezvous(host)
    place = host, rendezvous.port
    silent = [socket.create_connection(place) for _ in range(5)]
    silent[0].sendall(b"x")
    wrong = socket.create_connection(place)
    wrong.sendall(bytes(32))
    with suppress(ConnectionError):  # it may be sent away by now
        send(wrong, Runs())
    begun = time.monotonic()
    assert rendezvous.arrival(0.3) is None
    known = socket.create_connection(place)
    known.sendall(rendezvous.secret)
    send(known, Arrival(1, "here", 7))
    found = rendezvous.arrival(5.0)
    assert found[0] == Arrival(1, "here", 7)
    assert not RAN
    assert time.monotonic() - begun < 10
    huge = socket.create_connection(place)
    huge.sendall(rendezvous.secret + (2**40).to_bytes(8, "big") + pickle.dumps(1))
    assert rendezvous.arrival(0.2) is None
    rendezvous.close()
    for one in (*silent, wrong, known, huge, found[1]):
        one.close()


def has_ended(connection: socket.socket, seconds: float) -> bool:
    """Whether the other side closes it in that time."""
    connection.settimeout(seconds)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("known", [False, True])
def test_a_stranger_that_says_a_byte_now_and_then_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The deadline is that of the whole hello: of the secret, and of what follows it."""
    monkeypatch.setattr(launcher, "HELLO_SECONDS", 0.5)
    rendezvous = Rendezvous("127.0.0.1")
    length = launcher.LONGEST_HELLO.to_bytes(8, "big")
    with socket.create_connection(("127.0.0.1", rendezvous.port)) as slow:
        slow.sendall(rendezvous.secret + length if known else b"x")
        for _ in range(20):
            if has_ended(slow, 0.1):
                break
            with suppress(ConnectionError):
                slow.sendall(b"x")
        else:
            pytest.fail("it is held still")
    rendezvous.close()


def test_of_too_many_strangers_the_first_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "MOST_STRANGERS", 2)
    rendezvous = Rendezvous("127.0.0.1")
    strangers = [socket.create_connection(("127.0.0.1", rendezvous.port)) for _ in range(3)]
    assert has_ended(strangers[0], 5.0)
    assert not any(has_ended(one, 0.1) for one in strangers[1:])
    rendezvous.close()
    assert all(has_ended(one, 5.0) for one in strangers)
    for one in strangers:
        one.close()
