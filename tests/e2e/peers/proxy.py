# SPDX-License-Identifier: Apache-2.0
"""flightsplice as a process, and what it says of itself: log, metrics, health, live streams."""
import ctypes
import errno
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import time

from .link import Failed, WAIT_SECONDS

BINARY = os.environ.get("FLIGHTSPLICE", "build/flightsplice")
NAIVE = os.path.basename(BINARY) == "naive"  # has no admin port, no log
SANITIZED = os.environ.get("FLIGHTSPLICE_SANITIZED") == "1"
DATAPATH = os.environ.get("FLIGHTSPLICE_E2E_DATAPATH", "relay")
EXTRA_FLAGS = os.environ.get("FLIGHTSPLICE_E2E_FLAGS", "").split()
START_SECONDS = 20


def free_port(host="127.0.0.1"):
    """A port that nobody has, outside of the range from which the kernel takes those of connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        try:
            with socket.create_server((host, random.randrange(15000, 32000)), family=family) as s:
                return s.getsockname()[1]
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Proxy:
    def __init__(self, folder, *flags, loopback=True, host="127.0.0.1", expect_exit=0):
        self.address = (host, free_port(host))
        self.admin = ("127.0.0.1", free_port())
        self.log_path = os.path.join(folder, f"proxy-{self.address[1]}.log")
        self.expect_exit = expect_exit
        bracketed = f"[{host}]" if ":" in host else host
        command = [BINARY, "serve", "--listen", f"{bracketed}:{self.address[1]}",
                   "--admin", f"{self.admin[0]}:{self.admin[1]}", "--datapath", DATAPATH,
                   "--log-format", "json", "--log-level", "debug"]
        command += ["--allow-loopback"] if loopback else []
        command += EXTRA_FLAGS + list(flags)
        # The suite's own variables would be unknown flags to the proxy.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FLIGHTSPLICE")}
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=environment, preexec_fn=die_with_parent)
        self.pid = self.process.pid
        self._wait_start(command)

    def _wait_start(self, command):
        end = time.monotonic() + START_SECONDS
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"does not start: {' '.join(command)}: status {self.process.poll()}: {self.log_tail()}")
            time.sleep(0.01)

    def _ready(self):
        if not NAIVE:
            return self.get("/readyz")[0] == 200
        try:
            socket.create_connection(self.address, 1).close()
            return True
        except OSError:
            return False

    # ---- process

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        os.kill(self.pid, number)

    def wait_exit(self, seconds=WAIT_SECONDS):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"the proxy still runs after {seconds:g} s") from None

    def stop(self):
        """
        Ends it. Nothing is left to drain when a case is over, so one SIGTERM has to be enough. A Failed
        when it had died, does not end, or ends with another status than expected.
        """
        died = self.process.poll()
        if died is not None:
            if died != self.expect_exit:
                raise Failed(f"the proxy ended by itself with status {died}: {self.log_tail()}")
            return
        self.signal(signal.SIGTERM)
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            raise Failed(f"idle, and still running 10 s after SIGTERM: {self.log_tail()}") from None
        if status != self.expect_exit and not NAIVE:
            raise Failed(f"the proxy's exit status is {status}: {self.log_tail()}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def rss(self):
        """Resident memory in bytes."""
        with open(f"/proc/{self.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    # ---- what it says

    def log_lines(self):
        """Log records as dicts; lines that are not JSON as {"text": line}."""
        records = []
        with open(self.log_path, errors="replace") as f:
            for line in f:
                try:
                    records.append(json.loads(line))
                except ValueError:
                    records.append({"text": line.rstrip()})
        return records

    def log_tail(self):
        with open(self.log_path, errors="replace") as f:
            return " | ".join(line.rstrip() for line in f.readlines()[-3:])[-300:]

    def stream_lines(self):
        return [r for r in self.log_lines() if "grpc_status" in r]

    def get(self, path):
        connection = http.client.HTTPConnection(*self.admin, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def metrics(self):
        """{"name{labels}": value} of /metrics."""
        status, text = self.get("/metrics")
        if status != 200:
            raise Failed(f"/metrics answers {status} {text[:100]}")
        return {m[1]: float(m[2]) for m in re.finditer(r"^([a-z]\S*(?: \S+)*?) (\S+)$", text, re.M)}

    def metric(self, name):
        """The sum of flightsplice_NAME over its labels; `name` may be without _total."""
        pattern = re.compile(rf"flightsplice_{name}(_total)?(\{{.*\}})?$")
        found = [value for key, value in self.metrics().items() if pattern.match(key)]
        if not found:
            raise Failed(f"/metrics has no flightsplice_{name}")
        return sum(found)

    def wait(self, predicate, what, seconds=WAIT_SECONDS):
        end = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > end:
                raise Failed(f"not within {seconds:g} s: {what}")
            time.sleep(0.01)

    def wait_idle(self, seconds=WAIT_SECONDS):
        """No client, no stream, and every byte of executors accounted for."""
        if NAIVE:
            return
        try:
            self.wait(lambda: self.metric("clients") == 0 and self.metric("streams") == 0
                      and self._balance() == 0, "idle", seconds)
        except Failed:
            m = self.metrics()
            raise Failed("leak: " + ", ".join(
                f"{k}={v:g}" for k, v in m.items()
                if re.search(r"e_(clients|streams|upstreams|granted_bytes|held_bytes)$|data_bytes", k) and v)) from None

    def _balance(self):
        return self.metric("executor_data_bytes") - self.metric("client_data_bytes") - self.metric("dropped_data_bytes")
