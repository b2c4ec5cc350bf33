"""The learners' rendezvous lets in who has the secret, and strangers hold nobody up."""

import pickle
import socket
import time
from typing import Any

from turnwise_cluster.learners.launcher import Arrival, Rendezvous, send

RAN: list[str] = []


class Runs:
    """Says so when its pickle is read."""

    def __reduce__(self) -> Any:
        return RAN.append, ("stranger",)


def test_strangers_are_not_let_in_and_hold_nobody_up() -> None:
    rendezvous = Rendezvous("127.0.0.1")
    place = "127.0.0.1", rendezvous.port
    silent = [socket.create_connection(place) for _ in range(5)]
    silent[0].sendall(b"x")
    wrong = socket.create_connection(place)
    wrong.sendall(bytes(32))
    send(wrong, Runs())
    begun = time.monotonic()
    assert rendezvous.arrival(0.3) is None
    known = socket.create_connection(place)
    known.sendall(rendezvous.secret)
    send(known, Arrival(1, "here", 7))
    found = rendezvous.arrival(5.0)
    assert found is not None
    assert found[0] == Arrival(1, "here", 7)
    assert not RAN
    assert time.monotonic() - begun < 4
    huge = socket.create_connection(place)
    huge.sendall(rendezvous.secret + (2**40).to_bytes(8, "big") + pickle.dumps(1))
    assert rendezvous.arrival(0.2) is None
    rendezvous.close()
    for one in (*silent, wrong, known, huge, found[1]):
        one.close()
