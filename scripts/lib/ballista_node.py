#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Ballista scheduler or executor from the PyPI package, as one process.

    ballista_node.py scheduler HOST:PORT
    ballista_node.py executor  HOST:PORT SCHEDULER_HOST:PORT [TASKS]

Prints `ready` once it accepts connections; runs until SIGTERM or until standard input, if that is a
pipe, is closed: so it never outlives whoever started it. $BALLISTA_LOG sets the level of its log (warning).
"""
import logging
import os
import signal
import socket
import stat
import sys
import time

START_SECONDS = 30


def split(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def wait_for(address):
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(address, 1).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"ballista_node: {address[0]}:{address[1]} does not accept connections: {error}")
            time.sleep(0.05)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("scheduler", "executor"):
        sys.exit(__doc__)
    from ballista import BallistaExecutor, BallistaScheduler

    logging.basicConfig(level=os.environ.get("BALLISTA_LOG", "WARNING"), stream=sys.stderr)
    host, port = split(sys.argv[2])
    if sys.argv[1] == "scheduler":
        node = BallistaScheduler(bind_host=host, bind_port=port)
    else:
        scheduler_host, scheduler_port = split(sys.argv[3])
        tasks = int(sys.argv[4]) if len(sys.argv) > 4 else 4
        node = BallistaExecutor(bind_host=host, bind_port=port, scheduler_host=scheduler_host,
                                scheduler_port=scheduler_port, concurrent_tasks=tasks)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this
    node.start()
    wait_for((host, port))
    print("ready", flush=True)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        sys.stdin.buffer.read()
        os._exit(0)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
