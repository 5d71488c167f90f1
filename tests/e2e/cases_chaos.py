# SPDX-License-Identifier: Apache-2.0
"""
Everything at once, at random: clients that read at full speed, slowly or in bursts, that cancel, that
die, that send rubbish; three executors, two of which die and come back. What is judged: no result is
wrong or short and says it is complete, nothing hangs, who has to do only with the executor that lives
gets every result, memory stays flat, and in the end every byte is accounted for (Context.finish).

FLIGHTSPLICE_SOAK_MINUTES makes a soak of it (see tests/e2e/soak); FLIGHTSPLICE_SOAK_SEED repeats the
choices of a run, though not its timing.
"""
import collections
import json
import os
import random
import signal
import socket
import time

from peers.harness import SANITIZED, case, check
from peers.load import Executors, Fetch, WINDOWS_5M, WINDOWS_64K
from peers.proxy import DATAPATH

MINUTES = float(os.environ.get("FLIGHTSPLICE_SOAK_MINUTES", 0.4))
SEED = int(os.environ.get("FLIGHTSPLICE_SOAK_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
AT_ONCE = 6
HANG_SECONDS = 120 if SANITIZED else 40
SIZE = 4_000_000 if SANITIZED else 20_000_000
RSS_GROWTH = (400 if SANITIZED else 40) * 2**20

# name: (weight, any executor, killed, options, factor on the size)
KINDS = {
    "steady": (4, False, False, [*WINDOWS_5M, "-n", 16, "-j", 2, "-m", 4], 1),
    "mixed": (4, True, False, [*WINDOWS_5M, "-n", 24, "-j", 2, "-m", 4], 1),
    "small-windows": (2, True, False, [*WINDOWS_64K, "-n", 12, "-j", 1, "-m", 4], 0.4),
    "cancelling": (3, True, False, [*WINDOWS_5M, "-n", 24, "-j", 2, "-m", 4, "-x", 300], 1),
    "paced": (2, True, False, [*WINDOWS_5M, "-n", 6, "-j", 2, "-m", 2, "-R", 20_000_000, "-x", 100], 0.5),
    "killed": (4, True, True, [*WINDOWS_5M, "-n", 100, "-j", 3, "-m", 3], 10),
    "killed-paced": (2, True, True, [*WINDOWS_5M, "-n", 100, "-j", 2, "-m", 4, "-R", 10_000_000, "-x", 100], 2),
    "short": (2, False, False, ["-n", 200, "-j", 4, "-m", 10], 0.0002),
    "one-each": (1, False, False, ["-n", 40, "-j", 4, "-1"], 0.02),
}


class Chaos:
    def __init__(self, t):
        self.t = t
        self.rnd = random.Random(SEED)
        self.stable, self.mortal = Executors(t), [Executors(t), Executors(t)]
        self.proxy = t.proxy("--stall-timeout", "20s", "--log-level", "info")
        self.running = []   # (kind, Fetch, time of death or None)
        self.sum = collections.Counter()
        self.told, self.slowest, self.rss = collections.Counter(), 0.0, []
        self.next_death = time.monotonic() + 1

    def addresses(self, any_executor):
        mortal = [a for x in self.mortal for a in x.addresses] if any_executor else []
        return type("All", (), {"addresses": self.stable.addresses + mortal})

    def start(self):
        kind = self.rnd.choices(list(KINDS), [k[0] for k in KINDS.values()])[0]
        _, any_executor, killed, options, factor = KINDS[kind]
        f = Fetch(self.t, self.proxy, self.addresses(any_executor), *options, "-S", self.rnd.randrange(1, 2**31),
                  size=f"0-{int(SIZE * factor)}", seconds=HANG_SECONDS)
        self.running.append((kind, f, time.monotonic() + self.rnd.uniform(0.01, 1) if killed else None))

    def reap(self):
        """Takes the results of those that have ended, and kills those whose time has come."""
        left = []
        for kind, f, death in self.running:
            if f.process.poll() is not None:
                self.judge(kind, json.loads(f.process.stdout.read().splitlines()[-1]))
                f.process.stdout.close()
            elif death and time.monotonic() > death:
                f.process.send_signal(signal.SIGKILL)
                f.process.wait()
                f.process.stdout.close()
                self.sum["clients killed"] += 1
            else:
                left.append((kind, f, death))
        self.running = left

    def judge(self, kind, r):
        where = f"{kind} client, seed {SEED}"
        check(not r["wrong"], "%s: %d wrong: %s", where, r["wrong"], r["error"])
        check(not r["hung"], "%s: %d hung: %s", where, r["hung"], r["error"])
        check(KINDS[kind][1] or not r["failed"], "%s, whose executor lives: %s", where, r)
        if r["failed"]:
            self.told[r["error"].split(",")[0][:60]] += 1
        self.slowest = max(self.slowest, r["slowest"])
        for name in ("ok", "failed", "broken", "cancelled", "bytes"):
            self.sum[name] += r[name]

    def executor_dies(self):
        if time.monotonic() < self.next_death:
            return
        i = self.rnd.randrange(len(self.mortal))
        old = self.mortal[i]
        old.process.send_signal(signal.SIGKILL)
        old.process.wait()
        old.process.stdout.close()
        time.sleep(self.rnd.choice([0, 0.05, 0.4]))
        self.mortal[i] = Executors(self.t, addresses=old.addresses)
        self.sum["executors killed"] += 1
        self.next_death = time.monotonic() + self.rnd.uniform(0.3, 3)

    def rubbish(self):
        """A client that does not speak HTTP/2, or stops doing so."""
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" if self.rnd.random() < 0.7 else b""
        with socket.create_connection(self.proxy.address, 5) as s:
            s.sendall(preface + self.rnd.randbytes(self.rnd.choice([1, 9, 40, 3000])))
        self.sum["rubbish"] += 1

    def report(self):
        s = self.sum
        return (f"{s['ok']} right, {s['failed']} told they failed, {s['cancelled']} cancelled, "
                f"{s['bytes'] / 1e9:.1f} GB, slowest {self.slowest:.1f} s; killed {s['clients killed']} clients and "
                f"{s['executors killed']} executors; resident {self.rss[0] >> 20} to {max(self.rss) >> 20} MiB")


@case("chaos/mixed", limit=MINUTES * 60 + 3 * HANG_SECONDS)
def _(t):
    """Clients and executors of all kinds, dying at random."""
    c = Chaos(t)
    start = told = time.monotonic()
    while time.monotonic() < start + MINUTES * 60:
        while len(c.running) < AT_ONCE:
            c.start()
        c.executor_dies()
        if c.rnd.random() < 0.05:
            c.rubbish()
        c.reap()
        check(c.proxy.running(), "the proxy has died, seed %d: %s", SEED, c.proxy.log_tail())
        if time.monotonic() > told + 20 or not c.rss:
            told = time.monotonic()
            c.rss.append(c.proxy.rss())
            if MINUTES >= 2:
                print(f"     {(told - start) / 60:4.1f} min  {c.report()}", flush=True)
        time.sleep(0.02)
    while c.running:
        c.reap()
        time.sleep(0.02)
    c.rss.append(c.proxy.rss())
    check(c.sum["ok"] > 100, "only %d right", c.sum["ok"])
    # The first minute fills the pools; what comes later must not add to them.
    middle = c.rss[len(c.rss) // 2]
    check(c.rss[-1] < middle + RSS_GROWTH, "resident memory grew from %d to %d bytes", middle, c.rss[-1])
    ways = {r["datapath"] for r in c.proxy.stream_lines()}
    check(DATAPATH in ways or DATAPATH == "auto", "streams went by %s", ways)
    return f"seed {SEED}: {c.report()}; told: {dict(c.told.most_common(5))}"
