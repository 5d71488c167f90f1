# SPDX-License-Identifier: Apache-2.0
"""loadgen (tests/e2e/loadgen*.c) as python objects."""
import json
import os
import signal
import subprocess

from .harness import BUILD, check
from .link import Failed
from .proxy import free_port

LOADGEN = os.path.join(BUILD, "e2e", "loadgen")
WINDOWS_64K = ["-w", "65535", "-W", "65535"]
WINDOWS_5M = ["-w", str(2 * 2**20), "-W", str(5 * 2**20)]
WINDOWS_2G = ["-w", str(2**31 - 1), "-W", str(2**31 - 1)]


class Executors:
    """One process with `count` pretend executors, or with those of `addresses` again."""

    def __init__(self, t, count=1, addresses=None):
        self.addresses = addresses or [f"127.0.0.1:{free_port()}" for _ in range(count)]
        command = [LOADGEN, "exec"]
        for address in self.addresses:
            command += ["-l", address]
        self.process = t.process(command, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            raise Failed("loadgen exec did not start")


class Fetch:
    """A running `loadgen fetch`."""

    def __init__(self, t, proxy, executors, *options, size, seconds=100):
        self.seconds = seconds
        self.process = t.process(
            [LOADGEN, "fetch", "-c", f"{proxy.address[0]}:{proxy.address[1]}", "-e", ",".join(executors.addresses),
             "-b", str(size), "-t", str(seconds), *map(str, options)], stdout=subprocess.PIPE, text=True)

    def wait_stopped(self):
        """Until every connection has stopped reading or granting."""
        line = self.process.stdout.readline()
        if line != "stopped\n":
            raise Failed(f"loadgen fetch ended before its readers had stopped: {line}")

    def resume(self):
        self.process.send_signal(signal.SIGUSR1)

    def result(self):
        try:
            out, _ = self.process.communicate(timeout=self.seconds + 10)
            return json.loads(out.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            raise Failed(f"loadgen fetch: {error!r}, status {self.process.returncode}") from None

    def check_all_right(self, count):
        """Every fetch complete and byte-exact; returns "1.23 GB at 4.56 GB/s"."""
        r = self.result()
        check(r["ok"] == count and not r["failed"], "%d of %d right: %s", r["ok"], count, r["error"])
        return f"{r['bytes'] / 1e9:.2f} GB in {r['seconds']:.2f} s"
