"""The relay in a container: what a program wrote goes before the word that it has ended."""

import os
import socket

import pytest

from turnwise_sandbox import container


def test_output_goes_before_the_end_however_much_is_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program goes on writing while the relay reads, and ends with something in the pipe."""
    (out, out_end), (error, error_end) = os.pipe(), os.pipe()
    (control, control_end), (channel, channel_end) = socket.socketpair(), socket.socketpair()
    frames: list[tuple[int, bytes]] = []
    os.write(out_end, b"0")
    control_end.sendall(b"started")

    def send(descriptor: int, stream: int, data: bytes) -> None:
        frames.append((stream, data))
        output = sum(one == container.STDOUT for one, _ in frames)
        if stream == container.STDOUT and output < 4:
            os.write(out_end, str(output).encode())
        elif stream == container.STDOUT and output == 4:
            os.write(out_end, b"the end")
            control_end.sendall(b"ended")
            for one in (out_end, error_end):
                os.close(one)
            control_end.close()
            channel_end.close()

    monkeypatch.setattr(container, "send", send)
    container._up(
        {
            container.STDOUT: out,
            container.STDERR: error,
            container.CHANNEL: channel.fileno(),
            container.CONTROL: control.fileno(),
        }
    )
    output = b"".join(data for stream, data in frames if stream == container.STDOUT)
    said = [(stream, data) for stream, data in frames]
    assert output == b"0123the end"
    assert said.index((container.STDOUT, b"the end")) < said.index((container.CONTROL, b"ended"))
    for one in (out, error):
        os.close(one)
    control.close()
    channel.close()
