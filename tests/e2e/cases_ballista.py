# SPDX-License-Identifier: Apache-2.0
"""
Real Ballista, unchanged, with the proxy between its clients and its executors.

55: the programs ballista-scheduler (with --advertise-flight-endpoint), two ballista-executors, and a Rust
client; unpacked from $FLIGHTSPLICE_SHARED/ballista where that is. 54: the PyPI package's scheduler,
executor and client, the scheduler behind scripts/lib/advertise_shim.py.

Each query's rows are hashed independent of their order; the hash must be the one of the same query in a
cluster without the proxy, and the proxy must have carried at least the bytes that cannot be compressed.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.request

from peers.harness import BUILD, SANITIZED, SCALE, Skip, case, check
from peers.link import Failed
from peers.proxy import NAIVE, free_port

SHARED = os.environ.get("FLIGHTSPLICE_SHARED") or "../shared"
PROGRAMS = ("ballista-scheduler", "ballista-executor", "bclient")
VENV = os.path.join(BUILD, "quickstart", "venv")
RANDOM_COLUMNS = 8
BIG_FILES = 8
BIG_ROWS = BIG_FILES * max(20_000, int(1_100_000 * SCALE))  # 64 random bytes each: 563 MB that do not compress
SMALL_ROWS = 40_000

TINY = "select 1 as one"
COUNT = "select count(*) as n, sum(id) as s from small"
SMALL = "select * from small"
BIG = "select * from big"


def data_folder():
    """DIR/big/*.parquet and DIR/small/*.parquet, deterministic, made once."""
    folder = os.path.abspath(os.path.join(BUILD, "e2e", f"data-{BIG_ROWS}-{SMALL_ROWS}"))
    if os.path.exists(os.path.join(folder, "complete")):
        return os.path.join(folder, "tables")
    import pyarrow as pa
    import pyarrow.parquet as pq
    shutil.rmtree(folder, ignore_errors=True)
    rnd = random.Random(3)
    for name, rows, files in (("big", BIG_ROWS, BIG_FILES), ("small", SMALL_ROWS, 4)):
        path = os.path.join(folder, "tables", name)
        os.makedirs(path)
        n = rows // files
        for number in range(files):
            columns = {"id": pa.array(range(number * n, (number + 1) * n), pa.int64())}
            for c in range(RANDOM_COLUMNS):
                columns[f"c{c}"] = pa.Array.from_buffers(pa.int64(), n, [None, pa.py_buffer(rnd.randbytes(8 * n))])
            pq.write_table(pa.table(columns), os.path.join(path, f"{number}.parquet"), compression="NONE",
                           use_dictionary=False)
    open(os.path.join(folder, "complete"), "w").close()
    return os.path.join(folder, "tables")


def remember(key, compute):
    """What a query's result is without the proxy: asked once for each data folder and version."""
    path = os.path.join(os.path.dirname(data_folder()), "without-proxy.json")
    try:
        with open(path) as f:
            known = json.load(f)
    except (OSError, ValueError):
        known = {}
    if key not in known:
        known[key] = compute()
        with open(path + f".{os.getpid()}", "w") as f:
            json.dump(known, f)
        os.replace(path + f".{os.getpid()}", path)
    return known[key]


def wait_until(predicate, what, process, seconds=60):
    end = time.monotonic() + seconds
    while not predicate():
        if process.poll() is not None:
            raise Failed(f"{process.args[0]} ended with status {process.returncode}")
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def log_file(t, name):
    return open(os.path.join(t.folder, name + ".log"), "w")


# ---- 55


def programs():
    folder = os.path.abspath(os.path.join(BUILD, "e2e", "ballista55"))
    unpack = os.path.join(SHARED, "ballista", "unpack.sh")
    if not all(os.access(os.path.join(folder, p), os.X_OK) for p in PROGRAMS):
        if not os.path.exists(unpack):
            raise Skip(f"no programs of Ballista 55: neither {unpack} nor {folder}/{{{','.join(PROGRAMS)}}}; to make "
                       "them: cargo install --locked ballista-scheduler ballista-executor, and a client")
        subprocess.run(["bash", unpack, folder], check=True)
    return folder


class Cluster:
    def __init__(self):
        self.processes = []

    def stop(self):
        for p in self.processes:
            p.kill()
            p.wait()


class Cluster55(Cluster):
    def __init__(self, t, endpoint=None, executors=2):
        super().__init__()
        self.bin = programs()
        self.scheduler = f"127.0.0.1:{free_port()}"
        port = self.scheduler.split(":")[1]
        command = [os.path.join(self.bin, "ballista-scheduler"), "--bind-host", "127.0.0.1", "--bind-port", port,
                   "--external-host", "127.0.0.1", "--task-distribution", "round-robin"]
        if endpoint:
            command += ["--advertise-flight-endpoint", endpoint]
        s = self.start(t, "scheduler", command)
        wait_until(lambda: self.listed() is not None, "scheduler answers", s)
        for i in range(executors):
            work = os.path.join(os.path.abspath(t.folder), f"work-{port}-{i}")
            os.makedirs(work)
            t.stack.callback(shutil.rmtree, work, True)
            e = self.start(t, f"executor-{i}", [
                os.path.join(self.bin, "ballista-executor"), "--bind-host", "127.0.0.1", "--external-host", "127.0.0.1",
                "--scheduler-host", "127.0.0.1", "--scheduler-port", port, "--bind-port", str(free_port()),
                "--bind-grpc-port", str(free_port()), "--bind-health-port", str(free_port()), "--work-dir", work,
                "--vcores", "2"])
            wait_until(lambda: len(self.listed() or []) > i, f"executor {i} registered", e)

    def start(self, t, name, command):
        p = t.process(command, stdin=subprocess.DEVNULL, stdout=log_file(t, name), stderr=subprocess.STDOUT)
        self.processes.append(p)
        return p

    def listed(self):
        try:
            with urllib.request.urlopen(f"http://{self.scheduler}/api/executors", timeout=2) as r:
                return json.load(r) if r.status == 200 else None
        except (OSError, ValueError):
            return None

    def query(self, t, *queries, clients=1, repeat=1):
        """Runs them; [{rows, bytes, hash}] in order of finishing."""
        out = subprocess.run([os.path.join(self.bin, "bclient"), "-s", self.scheduler, "-d", data_folder(), "-p", "8",
                              "-j", str(clients), "-n", str(repeat), "-t", "120", *queries],
                             capture_output=True, text=True)
        results = [dict(re.findall(r"(\w+)=(\S+)", line), ok=line.startswith("ok")) for line in out.stdout.splitlines()]
        bad = [line for line in out.stdout.splitlines() if not line.startswith("ok")]
        check(not bad and out.returncode == 0, "the client says: %s %s", bad[:1], out.stderr[-300:])
        check(len(results) == clients * repeat * len(queries), "%d results", len(results))
        return results


# ---- 54


class Cluster54(Cluster):
    """One executor: the package's takes no option for its second port, so that one host has room for one."""

    def __init__(self, t, endpoint=None):
        super().__init__()
        subprocess.run(["scripts/lib/ballista-venv", VENV], check=True, stdout=sys.stderr)
        self.python = os.path.join(VENV, "bin", "python")
        self.environment = dict(os.environ, TMPDIR=os.path.join(os.path.abspath(t.folder), "tmp"))
        os.makedirs(self.environment["TMPDIR"], exist_ok=True)
        self.scheduler = f"127.0.0.1:{free_port()}"
        self.start(t, "scripts/lib/ballista_node.py", "scheduler", self.scheduler)
        self.start(t, "scripts/lib/ballista_node.py", "executor", f"127.0.0.1:{free_port()}", self.scheduler)
        if endpoint:
            shim = f"127.0.0.1:{free_port()}"
            self.start(t, "scripts/lib/advertise_shim.py", shim, self.scheduler, endpoint)
            self.scheduler = shim
        t.stack.callback(shutil.rmtree, self.environment["TMPDIR"], True)

    def start(self, t, script, *arguments):
        name = "-".join([os.path.basename(script)[:-3], *arguments[:1]]).replace(":", "-")
        p = t.process([self.python, script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                      stderr=log_file(t, name), env=self.environment)
        self.processes.append(p)
        check(p.stdout.readline() == b"ready\n", "%s %s did not start", script, arguments)

    def query(self, t, *queries, clients=1, repeat=1):
        command = [self.python, "tests/e2e/ballista54_client.py", self.scheduler, data_folder(), "8", *queries * repeat]
        running = [t.process(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log_file(t, f"client-{i}"),
                             text=True, env=self.environment) for i in range(clients)]
        results = [json.loads(line) for p in running for line in p.communicate()[0].splitlines()]
        bad = [r["error"] for r in results if "error" in r]
        check(not bad and all(p.returncode == 0 for p in running), "the client says: %s", bad[:1])
        check(len(results) == clients * repeat * len(queries), "%d results", len(results))
        return results


# ---- cases


def same(version, cluster, t, queries, clients=1, repeat=1, least=0, executors=1):
    """
    The queries through the proxy give what they give without it. `least`: bytes that must have come
    through the proxy, for it is no proof that the right result came from somewhere.
    """
    def without():
        plain = cluster(t)
        results = {q: plain.query(t, q)[0] for q in queries}
        plain.stop()
        return results
    want = remember(f"{version}: {queries}", without)
    p = t.proxy()
    c = cluster(t, f"{p.address[0]}:{p.address[1]}")
    begin = time.monotonic()
    got = c.query(t, *queries, clients=clients, repeat=repeat)
    seconds = time.monotonic() - begin
    expected = sorted((str(want[q]["rows"]), want[q]["hash"]) for q in queries) * clients * repeat
    check(sorted((str(r["rows"]), r["hash"]) for r in got) == sorted(expected), "rows and hashes: %s, without the proxy "
          "%s", [(r["rows"], r["hash"]) for r in got][:4], expected[:4])
    if NAIVE:
        return
    p.wait_idle()
    carried = p.metric("client_data_bytes")
    check(carried >= least, "%d bytes came through the proxy, at least %d should", carried, least)
    lines = [r for r in p.stream_lines() if r.get("method") == "DoGet"]
    check(len(lines) >= clients * repeat * len(queries), "%d streams in the proxy's log", len(lines))
    bad = [r for r in lines if r["grpc_status"] != "OK"]
    check(not bad, "streams that went wrong: %s", bad[:1])
    used = {r["executor"] for r in lines}
    check(len(used) >= executors, "results came from %s", used)
    return (f"{len(lines)} streams of {len(used)} executors on {' and '.join(sorted({r['datapath'] for r in lines}))}, "
            f"{carried / 1e6:.1f} MB, {seconds:.2f} s")


def cases(version, cluster, executors, namespace):
    random_bytes = 8 * RANDOM_COLUMNS

    @case(f"ballista-{version}/tiny-result", naive="pass", limit=200, namespace=namespace)
    def _(t):
        return same(version, cluster, t, [TINY, COUNT], least=16)

    @case(f"ballista-{version}/large-result", naive="pass", limit=300, namespace=namespace)
    def _(t):
        return same(version, cluster, t, [BIG], least=BIG_ROWS * random_bytes, executors=executors)

    @case(f"ballista-{version}/20-queries-one-after-another", naive="pass", limit=200, namespace=namespace)
    def _(t):
        return same(version, cluster, t, [SMALL, COUNT], repeat=10, least=10 * SMALL_ROWS * random_bytes)

    @case(f"ballista-{version}/8-clients-at-once", naive="pass", limit=300, namespace=namespace)
    def _(t):
        return same(version, cluster, t, [SMALL, TINY], clients=8, repeat=1 if SANITIZED else 3,
                    least=8 * SMALL_ROWS * random_bytes)


cases("55", Cluster55, 2, False)
cases("54", Cluster54, 1, True)
