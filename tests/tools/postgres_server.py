"""A Postgres server for tests, in a folder of its own that is gone afterwards."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PASSWORD = "none but this"
PATIENCE = 60.0


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    folder: str
    process: "subprocess.Popen[bytes]"

    def url(self, user: str = "postgres", password: str = PASSWORD) -> str:
        """Of its socket, as libpq has it."""
        return f"host={self.folder} user={user} password='{password}' dbname=postgres"

    def wait(self) -> None:
        """Until it takes connections."""
        import psycopg

        end = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > end or self.process.poll() is not None:
                    log = Path(self.folder, "log").read_text()
                    raise RuntimeError(f"the server does not start: {error}\n{log}") from error
            time.sleep(0.05)


def program(name: str) -> str:
    """Its path; a skip where there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[4]))
    found = shutil.which(name, path=os.pathsep.join([*map(str, folders[::-1]), os.environ["PATH"]]))
    if found is None:
        pytest.skip("needs a Postgres server (Debian: apt-get install postgresql)")
    return found


@contextlib.contextmanager
def running_server() -> Iterator[Running]:
    """A server that takes passwords alone, on a socket alone; root has it run as another user."""
    pytest.importorskip("psycopg", reason="needs turnwise[postgres]")
    initdb, postgres = program("initdb"), program("postgres")
    user = None if os.getuid() else pwd.getpwnam("nobody").pw_uid
    folder = tempfile.mkdtemp(prefix="turnwise-postgres-")
    data, file = f"{folder}/data", Path(folder, "password")
    file.write_text(PASSWORD)
    process = None
    try:
        for path in (folder, str(file)):
            os.chown(path, -1 if user is None else user, -1)
        making = [initdb, "-D", data, "-U", "postgres", "--pwfile", str(file), "--no-sync"]
        making += ["--auth", "scram-sha-256", "--no-locale", "--encoding", "UTF8"]
        subprocess.run(making, user=user, cwd="/", check=True, stdout=subprocess.DEVNULL)
        settings = f"-c fsync=off -c listen_addresses= -c unix_socket_directories={folder}"
        with open(f"{folder}/log", "wb") as log:
            starting = [postgres, "-D", data, *settings.split()]
            process = subprocess.Popen(starting, user=user, cwd="/", stderr=log, stdout=log)
        running = Running(folder, process)
        running.wait()
        yield running
    finally:
        if process is not None:
            process.kill()
            process.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)
