# SPDX-License-Identifier: Apache-2.0
"""Three network namespaces in a row: client - proxy - executor, over veth.

    client 10.1.0.2 -- 10.1.0.1 proxy 10.2.0.1 -- 10.2.0.2 executor

The proxy's namespace also routes, for the measurement without a proxy. The names carry our
process id, and the addresses exist nowhere but in there, so that several runs do not meet. Everything that
was started in them ends with them.

Congestion control is cubic whatever the host's default is (bbr paces, which on a veth measures
the pacing). It is set on the routes: a namespace may not choose an algorithm that the host
restricts, and the host's settings are not ours to change.
"""
import os
import shutil
import signal
import subprocess

CLIENT, PROXY, EXECUTOR = "client", "proxy", "executor"
PROXY_ADDR, EXECUTOR_ADDR = "10.1.0.1", "10.2.0.2"
CONGESTION = "cubic"


def ip(*args, netns=None):
    subprocess.run(["ip"] + (["-n", netns] if netns else []) + list(args), check=True)


class Topology:
    def __init__(self):
        self.names = {r: f"fsbench{os.getpid()}{r[0]}" for r in (CLIENT, PROXY, EXECUTOR)}
        self.children = []

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *exc):
        self._remove()

    def _build(self):
        if shutil.which("modprobe"):  # where it is not built in
            subprocess.run(["modprobe", "-q", f"tcp_{CONGESTION}"], check=False)
        c, p, x = (self.names[r] for r in (CLIENT, PROXY, EXECUTOR))
        for n in (c, p, x):
            ip("netns", "add", n)
            ip("link", "set", "lo", "up", netns=n)
        for end, dev, peer_dev, net in ((c, "c0", "p0", 1), (x, "x0", "p1", 2)):
            ip("link", "add", dev, "netns", end, "type", "veth", "peer", "name", peer_dev, "netns", p)
            for n, d, host in ((end, dev, 2), (p, peer_dev, 1)):
                ip("addr", "add", f"10.{net}.0.{host}/24", "dev", d, netns=n)
                ip("link", "set", d, "up", netns=n)
                ip("route", "replace", f"10.{net}.0.0/24", "dev", d, "proto", "kernel", "scope", "link",
                   "src", f"10.{net}.0.{host}", "congctl", CONGESTION, netns=n)
            ip("route", "add", "default", "via", f"10.{net}.0.1", "congctl", CONGESTION, netns=end)
        for role in self.names:
            # Each small fetch leaves a TIME_WAIT behind; thousands of them must not slow the next.
            self.sysctl(role, "net/ipv4/ip_local_port_range", "1024 65535")
            self.sysctl(role, "net/ipv4/tcp_tw_reuse", "1")
        self.sysctl(PROXY, "net/ipv4/ip_forward", "1")

    def enter(self, role):
        """The prefix that runs a command in there. Mounts stay as they are, unlike `ip netns exec`."""
        return ["nsenter", f"--net=/run/netns/{self.names[role]}"]

    def sysctl(self, role, name, value):
        subprocess.run(self.enter(role) + ["sh", "-c", f'echo "{value}" >/proc/sys/{name}'], check=True)

    def start(self, role, argv, log, preexec=None, env=None):
        """A process in the background, in a session of its own so that its children end with it."""
        with open(log, "ab") as out:
            child = subprocess.Popen(self.enter(role) + argv, stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=out, start_new_session=True, preexec_fn=preexec, env=env)
        self.children.append(child)
        return child

    @staticmethod
    def stop(child):
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()

    def _remove(self):
        for child in reversed(self.children):
            self.stop(child)
        for n in self.names.values():
            if os.path.exists(f"/run/netns/{n}"):
                subprocess.run(["ip", "netns", "del", n], check=False)
