"""The program that Ray runs in place of Python: it asks the fork server to fork a worker.

It runs in a Python without site packages, so that it starts quickly, and uses the standard library
alone. Its arguments are the socket of the server, the name of the program for which the server
forks, and the command line for Python. The forked child takes over the client's files, environment,
folder and signal mask, and the client ends. If no server answers, or for another program, the
client executes an ordinary Python; programs that do not delay the run get a lower priority. The
agents of a raylet end together with the raylet.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys

SIZE_BYTES = 8  # of the number that says how long a request is
ACCEPTED = b"+"
PATIENT = "log_monitor.py"  # a program of Ray that does not delay the run
LOWEST_PRIORITY = 19
# Of Ray, each started by the main thread of its raylet. They notice that the raylet has died, and
# then try for 60 s to tell a cluster that has died too.
AGENTS = ("dashboard/agent.py", "runtime_env/agent/main.py")
PR_SET_PDEATHSIG = 1  # of Linux (prctl.h): kept through execv


def ask(path: str, arguments: list[str]) -> bool:
    """Ask the server at a Unix socket to run a command line; return whether it does."""
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 (to import pathlib takes longer)
        "blocked_signals": [int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "oom_score_adjustment": _oom_score_adjustment(),
    }
    content = json.dumps(request).encode()
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(path)
            socket.send_fds(server, [len(content).to_bytes(SIZE_BYTES, "little")], [0, 1, 2])
            server.sendall(content)
            return server.recv(1) == ACCEPTED
    except OSError:
        return False


def _oom_score_adjustment() -> str:
    """Score by which the kernel ends processes without memory; Ray sets it for its workers."""
    with open("/proc/self/oom_score_adj", encoding="ascii") as file:  # noqa: PTH123
        return file.read()


def die_with_parent() -> None:
    """Let the kernel end this process as soon as its parent has died."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Start the program, as a fork or as an ordinary process."""
    path, program, *arguments = sys.argv[1:]
    file = next((word for word in arguments if not word.startswith("-")), "")
    name = os.path.basename(file)  # noqa: PTH119 (as above)
    if name == PATIENT:
        os.nice(LOWEST_PRIORITY)
    if file.endswith(AGENTS):
        die_with_parent()
    if name != program or not ask(path, arguments):
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 (Ray's own arguments)


if __name__ == "__main__":
    main()
