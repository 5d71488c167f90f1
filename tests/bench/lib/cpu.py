# SPDX-License-Identifier: Apache-2.0
"""CPU seconds that a run cost: the whole machine, and the proxy alone.

StatMeter takes the machine from /proc/stat, so whatever else runs is in the figure, and the
kernel samples it with its tick. It is for a quiet machine.

CgroupMeter puts load generator, proxy and executor into cgroups of their own and reads those,
which is exact to the microsecond and blind to others. What kernel threads did on their behalf is added: ksoftirqd
(packets) and kworker (sockmap redirects are sent by a work item). It also gives these
groups a large share of the CPUs, since figures of a preempted proxy say little. On cgroup v1 it
uses cpuacct and cpu, on v2 cpu.stat and cpu.weight.
"""
import glob
import os
import time

PF_KTHREAD = 0x00200000
TICK = os.sysconf("SC_CLK_TCK")


def read(path):
    with open(path) as f:
        return f.read()


def process_stat(pid):
    """Fields of /proc/PID/stat from the third on, and the name."""
    text = read(f"/proc/{pid}/stat")
    name, rest = text[text.index("(") + 1:].rsplit(")", 1)
    return name, rest.split()


def tree(pid):
    """The process and its descendants."""
    pids = [pid]
    for tasks in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            for child in read(tasks).split():
                pids += tree(int(child))
        except OSError:
            pass
    return pids


def process_seconds(pid):
    total = 0
    for p in tree(pid):
        try:
            f = process_stat(p)[1]
            total += int(f[11]) + int(f[12])
        except OSError:
            pass
    return total / TICK


def machine_seconds():
    """user, nice, system, irq, softirq of all CPUs."""
    v = [int(x) for x in read("/proc/stat").split("\n", 1)[0].split()[1:]]
    return (v[0] + v[1] + v[2] + v[5] + v[6]) / TICK


def kernel_thread_seconds():
    """{pid: seconds} of the kernel threads that move packets for others."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        pid = path.split("/")[2]
        try:
            name, f = process_stat(pid)
            if not int(f[6]) & PF_KTHREAD or not name.startswith(("ksoftirqd/", "kworker/")):
                continue
            exact = read(f"/proc/{pid}/schedstat").split()[0]
            found[pid] = int(exact) / 1e9 if exact != "0" else (int(f[11]) + int(f[12])) / TICK
        except OSError:
            pass
    return found


def grown(before, after):
    return sum(s - before.get(pid, 0) for pid, s in after.items())


class StatMeter:
    name = "/proc/stat"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def enter(self, group):
        return None

    def begin(self, group, pid):
        self._at = machine_seconds(), process_seconds(pid) if pid else 0

    def end(self, group, pid):
        return {"machine": machine_seconds() - self._at[0],
                "proxy": (process_seconds(pid) if pid else 0) - self._at[1]}


class CgroupMeter:
    """`group` is "client", "executor" or a name of a proxy; all are below one of our own."""

    def __init__(self):
        mounts = [line.split() for line in read("/proc/mounts").splitlines()]
        own = f"flightsplice-bench-{os.getpid()}"
        v1 = {c: m[1] for m in mounts if m[2] == "cgroup" for c in m[3].split(",")}
        v2 = [m[1] for m in mounts if m[2] == "cgroup2"]
        self.made = []
        if "cpuacct" in v1:
            self.v2 = False
            self.root = f"{v1['cpuacct']}/{own}"
            self.share = f"{v1['cpu']}/{own}" if "cpu" in v1 else None
        elif v2:
            self.v2 = True
            self.root = self.share = f"{v2[0]}/{own}"
        else:
            raise OSError("no cgroup file system with CPU accounting is mounted")
        self.name = "cgroup v2 cpu.stat" if self.v2 else "cgroup cpuacct"

    def __enter__(self):
        self._make(self.root)
        if self.share and self.share != self.root:
            self._make(self.share)
        try:
            knob, value = ("cpu.weight", 10000) if self.v2 else ("cpu.shares", 262144)
            with open(f"{self.share}/{knob}", "w") as f:
                f.write(str(value))
        except OSError:
            pass  # no such controller here: exact figures, but no priority
        return self

    def __exit__(self, *exc):
        for path in reversed(self.made):
            self._remove(path)

    @staticmethod
    def _remove(path):
        for _ in range(50):
            try:
                os.rmdir(path)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.05)  # a killed process that is no child of ours is still on its way out

    def _make(self, path):
        os.mkdir(path)
        self.made.append(path)

    def enter(self, group):
        path = f"{self.root}/{group}"
        if path not in self.made:
            self._make(path)
        files = [f"{path}/cgroup.procs"]
        if self.share and self.share != self.root:
            files.append(f"{self.share}/cgroup.procs")

        def preexec():
            for name in files:
                with open(name, "w") as f:
                    f.write("0")
        return preexec

    def _usage(self, path):
        if not os.path.isdir(path):
            return 0  # nothing was ever started in this group
        if not self.v2:
            return int(read(f"{path}/cpuacct.usage")) / 1e9
        return int(read(f"{path}/cpu.stat").split()[1]) / 1e6

    def begin(self, group, pid):
        self._at = self._usage(self.root), self._usage(f"{self.root}/{group}"), kernel_thread_seconds()

    def end(self, group, pid):
        kernel = grown(self._at[2], kernel_thread_seconds())
        return {"machine": self._usage(self.root) - self._at[0] + kernel,
                "proxy": self._usage(f"{self.root}/{group}") - self._at[1], "kernel_threads": kernel}
