# SPDX-License-Identifier: Apache-2.0
"""The symptoms of docs/troubleshooting.md, caused for real, and found with the commands of that page: with
bpftool alone, with our command alone, with the metrics alone."""
import os
import re
import signal
import socket
import subprocess
import time

from peers import proxy as proxy_module, wire
from peers.executor import reply
from peers.harness import case, check
from peers.link import Failed
from cases_board import check_kernel, name_of, pin_dir, tool
from cases_flow import WIDE
from cases_observe import held_head, stalled
from cases_request import SMALL, check_clean

PAGE = "docs/troubleshooting.md"
PINS, ADMIN = "/sys/fs/bpf/flightsplice", "127.0.0.1:9550"


def recipes(section):
    """{"bpftool": script, "cli": script, "metrics": script} of one section of the page."""
    with open(PAGE) as f:
        found = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", f.read(), re.S | re.M))
    check(section in found, "%s has no section %s", PAGE, section)
    blocks = dict(re.findall(r"^```sh (\w+)\n(.*?)^```", found[section], re.S | re.M))
    check(set(blocks) == {"bpftool", "cli", "metrics"}, "'%s' has the recipes %s", section, sorted(blocks))
    return blocks


def operations(kind):
    """The recipes of docs/operations.md."""
    with open("docs/operations.md") as f:
        return re.findall(rf"^```sh {kind}\n(.*?)^```", f.read(), re.S | re.M)


def bash(script, p, folder, bin_folder):
    script = script.replace(PINS, folder).replace(ADMIN, name_of(p.admin))
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8",
                   "FLIGHTSPLICE_PIN_DIR": folder}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=40, env=environment)
    return done.stdout + done.stderr


class Trouble:
    """A proxy with pinned maps of its own, and the page's commands for it."""

    def __init__(self, t, section, *flags, **options):
        for name in ("bpftool", "jq", "curl"):
            tool(name)
        self.folder = pin_dir(t)
        self.scripts = recipes(section)
        self.bin = os.path.join(t.folder, "bin")
        os.makedirs(self.bin)
        os.symlink(os.path.abspath(proxy_module.BINARY), os.path.join(self.bin, "flightsplice"))
        self.p = t.proxy("--pin-dir", self.folder, *flags, **options)

    def run(self, kind):
        return bash(self.scripts[kind], self.p, self.folder, self.bin)

    def find(self, bpftool, cli, metrics):
        """Waits until each recipe prints what the pattern says."""
        for kind, pattern in (("bpftool", bpftool), ("cli", cli), ("metrics", metrics)):
            end = time.monotonic() + 20
            while not re.search(pattern, out := self.run(kind), re.M):
                if time.monotonic() > end:
                    raise Failed(f"the recipe for {kind} does not find {pattern!r} but: {out}")
                time.sleep(0.2)

    def finds_nothing(self):
        """Before the symptom: the recipes are about it, and not about anything."""
        for kind in ("bpftool", "cli", "metrics"):
            out = [line for line in self.run(kind).splitlines() if "WAITS FOR" not in line]
            check(not out, "without the symptom the recipe for %s finds %s", kind, out)


@case("trouble/stalled-client", limit=90)
def _(t):
    trouble = Trouble(t, "A result has stopped: the client")
    trouble.finds_nothing()
    s = stalled(t, trouble.p, job="q-stalled")
    mine = re.escape(name_of(s.client.sock.getsockname()))
    trouble.find(rf"\tclient window\tq-stalled\t3\t14\t{mine}\t[1-9]", rf"q-stalled +3 +14 .*{mine} .*client window",
                 r'streams_waiting\{for="client_window"\} 1$')
    trouble.find("", "", r'streams_stuck\{for="client_window"\} 1$')
    s.rst()


@case("trouble/slow-executor", limit=90)
def _(t):
    """One that answers slowly among one that does not."""
    trouble = Trouble(t, "A result has stopped: the executor")
    fast, slow = t.executor(reply(SMALL)), t.executor(held_head)
    check_clean(t.client(trouble.p).get(fast).wait_done(), SMALL)
    s = t.client(trouble.p).get(slow, job="q-slow")
    s.wait_head()
    mine = re.escape(name_of(slow.address))
    trouble.find(rf"^\d{{4}}-\S+ \S+\t{mine}\t1\t0$", rf"q-slow .*{mine} .*executor data",
                 r'streams_waiting\{for="executor_data"\} 1$')
    check(name_of(fast.address) not in trouble.run("bpftool"), "the fast executor is accused: %s", trouble.run("bpftool"))
    line, = [k for k in trouble.run("cli").splitlines() if k.startswith(name_of(slow.address))]
    check(re.search(r" 1 ", line), "executors says %s", line)
    trouble.find("", "", r'streams_stuck\{for="executor_data"\} 1$')
    s.rst()


def spliced(t, p, job):
    """A stream whose first MiB is with the client, which has granted no more, and that is spliced now."""
    def script(call):
        call.wait_request()
        call.head()
        call.send(bytes(2**20))
        calls.append(call)
        call.wait_released(120)
    calls = []
    c = t.client(p, window=2**20, conn_window=WIDE)
    s = c.get(t.executor(script), job=job, stage=3, partition=14)
    s.auto = False
    s.wait_bytes(2**20)
    p.wait(lambda: p.metric("splice_pairs") == 1 and calls, "a pair in the kernel")
    return s, calls[0]


SPLICING = ("--datapath", "sockmap", "--promote-after", "65536")


@case("trouble/stalled-client-spliced", limit=90)
def _(t):
    """The recipes find the stalled client of a stream whose bytes the process does not see, and of which it holds none."""
    check_kernel()
    trouble = Trouble(t, "A result has stopped: the client", *SPLICING)
    s, call = spliced(t, trouble.p, "q-spliced")
    s.grant(300_000)
    call.send(bytes(300_000))
    s.wait_bytes(2**20 + 300_000)
    mine = re.escape(name_of(s.client.sock.getsockname()))
    trouble.find(rf"\tclient window\tq-spliced\t3\t14\t{mine}\t0$", rf"q-spliced +3 +14 .*{mine} .*client window",
                 r'streams_waiting\{for="client_window"\} 1$')
    row, = [line for line in trouble.run("cli").splitlines() if "q-spliced" in line]
    check("sockmap" in row, "the stream is shown as %s", row)
    s.rst()


@case("trouble/slow-executor-spliced", limit=90)
def _(t):
    check_kernel()
    trouble = Trouble(t, "A result has stopped: the executor", *SPLICING)
    s, _ = spliced(t, trouble.p, "q-spliced")
    mine = re.escape(name_of(t.executors[0].address))
    s.grant(2**20)
    trouble.find(rf"^\d{{4}}-\S+ \S+\t{mine}\t1\t0$", rf"q-spliced .*{mine} .*executor data",
                 r'streams_waiting\{for="executor_data"\} 1$')
    s.rst()


@case("trouble/refused-policy")
def _(t):
    trouble = Trouble(t, "Refused by policy", loopback=False)
    trouble.finds_nothing()
    s = t.client(trouble.p).get(t.executor(reply(SMALL))).wait_done()
    check(s.status == 7, "the client saw %s", s.describe())
    trouble.find(r"^policy loopback address\t1$", r"policy loopback address +1", r'verdict="loopback_address"\} 1$')


@case("trouble/unreachable-executor")
def _(t):
    trouble = Trouble(t, "An executor cannot be reached")
    trouble.finds_nothing()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        s = t.client(trouble.p).request(wire.ticket(*nobody.getsockname())).wait_done()
    check(s.status == 2, "the client saw %s", s.describe())
    trouble.find(r"^dial failure\t1\t", r"dial failure +1", r'result="not_connected"\} 1$')


@case("trouble/exhausted-budget")
def _(t):
    t.tolerate_violations = True
    trouble = Trouble(t, "A budget is used up")
    trouble.finds_nothing()
    c = t.client(trouble.p)
    c.wait(lambda: c.frames, "SETTINGS")
    for _ in range(100):
        try:
            c.raw(wire.frame(wire.PRIORITY, 0, 1, bytes(4) + b"\x10") * 1000)
        except OSError:
            break
    c.wait(lambda: c.closed, "the end of a client that sends 100,000 PRIORITYs")
    trouble.find(r"^budget client_control\t1$", r"budget client_control +1", r'budget="client_control"\} 1$')


@case("trouble/draining")
def _(t):
    trouble = Trouble(t, "Draining")
    s = stalled(t, trouble.p, job="q-last")
    check("draining" not in trouble.run("cli").split("JOB")[0], "it drains already")
    trouble.p.signal(signal.SIGTERM)
    s.client.wait(lambda: len(s.client.goaways) >= 2, "GOAWAY twice")
    trouble.find(r"^draining\t1\t1$(.|\n)*\tq-last\t", r"draining(.|\n)*q-last", r"^flightsplice_draining 1$")
    check("flightsplice_ready 0" in trouble.run("metrics"), "draining, and ready: %s", trouble.run("metrics"))
    s.auto = True
    s.grant(2**21)
    check(s.wait_done().clean, "the stream: %s", s.describe())
    check(trouble.p.wait_exit() == 0, "exit status %s", trouble.p.process.returncode)


@case("trouble/lost-events", limit=180)
def _(t):
    """
    More spliced pairs die while the process is stopped than the (smallest possible) ring buffer has room
    for; afterwards the worker has found all of them.
    """
    check_kernel()
    t.tolerate_violations = True
    flood = wire.frame(wire.PRIORITY, 0, 1, bytes(4) + b"\x10") * 100_000
    page = os.sysconf("SC_PAGE_SIZE")
    pairs = page // 48 + 20  # an event takes 48 bytes
    os.environ["SPLICE_RING_BYTES"] = str(page)
    trouble = Trouble(t, "Events were lost", "--datapath", "sockmap", "--promote-after", "65536", "--workers", "1",
                      "--client-inflight", "256KiB")
    trouble.finds_nothing()
    p = trouble.p
    go, first = [], 800_000  # more than the credit that it has before it is promoted

    def script(call):
        call.wait_request()
        call.head()
        call.send(bytes(first))
        go.append(call)
        call.wait_released(120)
    x = t.executor(script)
    streams = []
    for _ in range(pairs):
        streams.append(t.client(p, window=65535, conn_window=WIDE).get(x))
        streams[-1].wait_bytes(first)
    p.wait(lambda: p.metric("splice_pairs") == pairs, f"{pairs} pairs in the kernel, there are {p.metric('splice_pairs')}")
    recipe, = operations("kernel")
    rows = bash(recipe, p, trouble.folder, trouble.bin).splitlines()
    check(len(rows) == pairs and all('"dead":0' in r for r in rows), "the recipe for pairs prints %s", rows[:3])
    p.signal(signal.SIGSTOP)
    try:
        for call in go:  # more for the tap than flow control allows: the kernel gives the pair up
            call.link.raw(flood)
    finally:
        p.signal(signal.SIGCONT)
    trouble.find(r"^kernel events lost\t[1-9]", r"kernel events lost +[1-9]", r"^flightsplice_ring_events_lost_total [1-9]")
    p.wait(lambda: p.metric("splice_pairs") == 0 and p.metric("clients") == 0, "all pairs to have been found")


@case("trouble/stands-still")
def _(t):
    trouble = Trouble(t, "The process stands still")
    p = trouble.p
    check(re.search(r"^[SRD]$", trouble.run("bpftool"), re.M), "it runs, and %s", trouble.run("bpftool"))
    check("no answer" not in trouble.run("metrics"), "it runs, and does not answer")
    p.signal(signal.SIGSTOP)
    try:
        trouble.find(r"^T$", rf"process {p.pid} is stopped", "^no answer$")
        written = trouble.run("bpftool").splitlines()[0]
        time.sleep(1.5)
        check(trouble.run("bpftool").splitlines()[0] == written, "a stopped process writes")
    finally:
        p.signal(signal.SIGCONT)


@case("trouble/recipes-of-operations", limit=90)
def _(t):
    """Each recipe of docs/operations.md runs, and prints something about the stream that is there."""
    for name in ("bpftool", "jq"):
        tool(name)
    folder = pin_dir(t)
    p = t.proxy("--pin-dir", folder)
    s = stalled(t, p, job="J")
    scripts = operations("recipe")
    check(len(scripts) >= 10, "%d recipes found", len(scripts))
    p.wait(lambda: '"J"' in bash(scripts[2].replace("@tsv", "tojson"), p, folder, t.folder), "the stream to be shown")
    for script in scripts:
        out = bash(f"set -euo pipefail\n{script}\necho done", p, folder, t.folder)
        check(out.endswith("done\n") and len(out) > 6 and not re.search("^(Error|jq: error)", out, re.M), "%s prints %s",
              script, out)
    check("client window" in bash(scripts[2], p, folder, t.folder), "the stream is not there")
    check(name_of(t.executors[0].address) in bash(scripts[5], p, folder, t.folder), "its executor is not there")
    # 4000 bytes of it have been delivered; the balance says what is held.
    s.rst()
    p.wait(lambda: bash(scripts[9], p, folder, t.folder).strip() == "0", "the balance to be 0")
