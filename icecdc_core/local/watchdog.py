"""A script that runs a server until the process that started it ends: `python watchdog.py PID FOLDER COMMAND...`.

If the starting process, whose id is PID, dies without a SIGTERM to this one, FOLDER with its data is removed too.
"""

import os
import shutil
import signal
import subprocess
import sys
import time


def main(parent: int, folder: str, command: list[str]) -> int:
    """Run the command until it, a SIGTERM or the starting process ends it; returns the exit code."""
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while server.poll() is None and not stops and os.getppid() == parent:
        time.sleep(0.1)
    if server.poll() is not None:
        return server.returncode
    server.terminate()
    try:
        server.wait(20.0)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if not stops:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
