"""Starts the workers of edgesim's own Ray as forks of a process that has imported torch.

A process that imports torch and edgesim takes seconds of a core, and memory of its own for them; on
a machine with fewer cores than actors that is most of a fleet's start. A fork of a process that has
imported them takes milliseconds and shares that memory.

Ray is imported later, when the first worker asks: on import Ray reads its environment variables,
which hold settings and also the job and the raylet of the worker. A worker whose variables for Ray
differ from those of the first is started without a fork.

Ray is told to start `fork_client.py` in the place of Python (own_ray.py). The client's program and
the server's socket are in the private folder of the session. The server ends with the driver: it
waits for the end of a pipe that the driver holds. If the driver was killed, the server removes the
folder.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from edgesim.fleet.on_ray import fork_client
from edgesim.fleet.on_ray.fork_client import ACCEPTED, SIZE_BYTES
from edgesim.fleet.on_ray.private_folder import remove

PRELOADED = ("edgesim.fleet.on_ray.preloaded",)
# Optional packages that Ray imports; they take half of the time of importing Ray.
PRELOADED_FOR_RAY = ("requests", "jsonschema", "google.protobuf.json_format", "psutil", "filelock")
LOADED_LATE = ("ray._private.workers.default_worker", "edgesim.fleet.on_ray.actor")
WORKER = "default_worker.py"  # the program that is a worker of Ray
VARIABLES_OF_RAY = "RAY_"  # how their names begin
ONE_THREAD = {  # a fork keeps only the thread that forks
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
WAITING_CLIENTS = 1024
CLIENT_TIMEOUT_S = 2.0  # for a client to say what it wants; others wait meanwhile
END_OF_RAY_S = 20.0  # after the end of its driver

_KEYS_OF_A_REQUEST = {
    "arguments",
    "environment",
    "folder",
    "blocked_signals",
    "open_files",
    "oom_score_adjustment",
}
_SLOWER = "actors start one by one, which takes longer"

_log = logging.getLogger(__name__)


@contextmanager
def fork_server(
    folder: Path,
    preloaded: Sequence[str] = PRELOADED,
    loaded_late: Sequence[str] = LOADED_LATE,
    worker: str = WORKER,
) -> Iterator[Path | None]:
    """Run a server; yield the program to run in place of Python, or None if there can be no server.

    Workers outlive the server; later workers start as ordinary processes.

    Args:
        folder: private, for the socket and the program; removed if this process is killed.
        preloaded: modules that workers have imported when they begin; they must start no threads.
        loaded_late: modules that are imported with the environment of the first worker.
        worker: name of the program that is started as a fork; others run as ordinary processes.
    """
    path = f"{folder}/socket"
    python = _write_program(folder, path, worker)
    listener = _listen(path) if python is not None else None
    if listener is None:
        yield None
        return
    with listener:
        server = _start(listener, folder, preloaded, loaded_late)
    try:
        yield python
    finally:
        _end(server)


def _write_program(folder: Path, path: str, worker: str) -> Path | None:
    """The program that runs clients; None if no program may be run there."""
    python = folder / "python"
    client = [sys.executable, "-I", "-S", fork_client.__file__, path, worker]
    python.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
    python.chmod(0o700)
    if not os.access(python, os.X_OK):
        _log.info("no fork server: %s is on a file system without programs", folder)
        return None
    return python


def _listen(path: str) -> socket.socket | None:
    """A socket for clients; None where no server can be."""
    if sys.platform != "linux":  # forks of a process with system libraries are unsafe elsewhere
        return None
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
    except OSError as error:  # the path may be too long for a socket
        _log.info("no fork server at %s: %s", path, error)
        listener.close()
        return None
    listener.listen(WAITING_CLIENTS)  # those that come before all is imported wait
    return listener


def _start(
    listener: socket.socket, folder: Path, preloaded: Sequence[str], loaded_late: Sequence[str]
) -> subprocess.Popen[bytes]:
    program = f"import sys; sys.path[:] = {sys.path}; from {__name__} import main; main()"
    return subprocess.Popen(  # noqa: S603 (our own program)
        [
            *(sys.executable, "-c", program),
            *(str(listener.fileno()), str(folder), " ".join(preloaded), " ".join(loaded_late)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **ONE_THREAD},
        pass_fds=(listener.fileno(),),
        start_new_session=True,  # an interrupt from the keyboard goes to the driver alone
    )


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server at once, whatever it is doing; it holds nothing, and its forks live on."""
    assert server.stdin is not None
    server.kill()
    server.wait()
    server.stdin.close()


class _ThreadsStartedError(Exception):
    """No fork keeps the threads of its parent."""


@dataclass(slots=True)
class _Request:
    """A request for a worker.

    Attributes:
        client: connection to the client, which waits for an answer.
        files: descriptors of its standard input, output and errors.
        content: its arguments, environment and other settings (fork_client.py).
    """

    client: socket.socket
    files: list[int]
    content: dict[str, Any]

    @classmethod
    def take(cls, client: socket.socket) -> _Request:
        """Read the request of a client.

        Raises:
            OSError, ValueError: the client sends no valid request.
        """
        client.settimeout(CLIENT_TIMEOUT_S)
        head, files, _, _ = socket.recv_fds(client, SIZE_BYTES, 3)
        try:
            with client.makefile("rb") as stream:
                content = json.loads(stream.read(int.from_bytes(head, "little")))
            if not isinstance(content, dict) or content.keys() != _KEYS_OF_A_REQUEST:
                raise ValueError("no request of fork_client.py")  # noqa: TRY301
        except (OSError, ValueError):
            _close(files)
            raise
        return cls(client, files, content)

    @property
    def environment(self) -> dict[str, str]:
        """All variables."""
        environment: dict[str, str] = self.content["environment"]
        return environment

    @property
    def variables_of_ray(self) -> dict[str, str]:
        """Variables that Ray may read when it is imported."""
        return {
            name: value
            for name, value in self.environment.items()
            if name.startswith(VARIABLES_OF_RAY)
        }

    def is_like(self, first: _Request) -> bool:
        """Whether the imports made for the first request also fit this one."""
        own, others = self.variables_of_ray, first.variables_of_ray
        differences = sorted(name for name, _ in own.items() ^ others.items())
        if differences:
            names = ", ".join(dict.fromkeys(differences))
            _log.warning("%s: a worker has another %s than the first", _SLOWER, names)
        return not differences

    def accept(self) -> None:
        """Take over the client's files, and let it end."""
        for standard, file in enumerate(self.files):
            os.dup2(file, standard)
        self.client.sendall(ACCEPTED)
        self.close()

    def close(self) -> None:
        """Close the connection without an answer, so that the client starts an ordinary worker."""
        _close(self.files)
        self.client.close()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    """Serve until standard input ends; a forked child then runs the program of its client."""
    descriptor, folder, preloaded, loaded_late = sys.argv[1:]
    request = None
    try:
        with socket.socket(fileno=int(descriptor)) as listener:
            try:
                request = _serve(listener, preloaded.split(), loaded_late.split())
            except Exception as error:  # noqa: BLE001 (what Ray starts workers with must stay)
                is_known = isinstance(error, _ThreadsStartedError)
                _log.warning("%s: %s", _SLOWER, error, exc_info=not is_known)
                listener.close()  # clients start ordinary workers
    finally:
        if request is None:
            sys.stdin.read()  # ends with a driver that was killed: one that ends kills this server
            remove(Path(folder), END_OF_RAY_S)
    if request is not None:
        _become(request)


def _serve(
    listener: socket.socket, preloaded: Sequence[str], loaded_late: Sequence[str]
) -> _Request | None:
    """Fork for each client; returns its request in each child, and None when the driver is gone."""
    for name in PRELOADED_FOR_RAY if loaded_late else ():
        with suppress(ImportError):
            import_module(name)
    _load(preloaded)
    first: _Request | None = None
    with selectors.DefaultSelector() as selector:
        driver = selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while all(key is not driver for key, _ in selector.select()):
            request = _next_request(listener)
            if request is None:
                continue
            if first is None:
                first = request
                _set_environment(first.environment)
                with ExitStack() as refused:
                    refused.callback(request.close)
                    _load(loaded_late)
                    refused.pop_all()
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a child
            if request.is_like(first) and _fork() == 0:
                return request
            request.close()
    return None


def _next_request(listener: socket.socket) -> _Request | None:
    """The request of the next client; None if it sends none."""
    try:
        client, _ = listener.accept()
    except OSError:  # such as too many open files: it starts an ordinary worker
        return None
    try:
        return _Request.take(client)
    except (OSError, ValueError):
        client.close()
        return None


def _fork() -> int | None:
    """`os.fork`; None if the system allows no further process."""
    try:
        return os.fork()
    except OSError as error:
        _log.warning("%s: %s", _SLOWER, error)
        return None


def _load(names: Sequence[str]) -> None:
    """Import modules that children are to have.

    Raises:
        _ThreadsStartedError: there can be no children.
    """
    for name in names:
        import_module(name)
    if sum(1 for _ in Path("/proc/self/task").iterdir()) > 1:
        raise _ThreadsStartedError("an import has started threads")
    gc.collect()
    gc.freeze()  # a garbage collection in a child would copy shared memory


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _become(request: _Request) -> None:
    """Run the program of a client in this process."""
    os.setpgid(0, 0)  # Ray kills the process group of a lost worker
    request.accept()
    content = request.content
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, content["blocked_signals"])
    resource.setrlimit(resource.RLIMIT_NOFILE, content["open_files"])
    Path("/proc/self/oom_score_adj").write_text(content["oom_score_adjustment"])
    _set_environment(request.environment)
    os.chdir(content["folder"])
    arguments: list[str] = content["arguments"]
    while arguments[0].startswith("-"):  # options of Python, such as -u
        arguments.pop(0)
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")
