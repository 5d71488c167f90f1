#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The part of scripts/quickstart that runs: cluster, proxy, queries, proof, clean end.

    client ── SQL ──> shim ──> scheduler            results: client <── flightsplice <── executor

The shim (advertise_shim.py) stands in for the scheduler option that tells clients where to fetch
results. It advertises the proxy only, but that alone proves nothing: a query counts only when the
proxy's own log has streams of it that ended with grpc-status 0 and that carried at least as many
bytes as the result must have. The result has a column of random numbers, which no encoding makes
smaller, so that lower bound is real.
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS_PER_FILE = 500_000
FILES = 4
# The executor of the Python package listens here too; it takes no option for it.
EXECUTOR_GRPC_PORT = 50052
START_SECONDS = 60
LOG_SECONDS = 10

CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_BPF = 12, 21, 39


class Failure(Exception):
    """Told to the person in one line; everything is stopped and the status is 1."""


def say(text):
    print(f"[{options.elapsed + time.monotonic() - started:3.0f}s] {text}", flush=True)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def make_data(folder):
    """A table of taxi trips as parquet files; once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = os.path.join(folder, "data", "trips")
    if os.path.exists(os.path.join(path, ".complete")):
        return path
    say(f"generating {FILES * ROWS_PER_FILE:,} rows of parquet")
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    rnd = random.Random(1)
    for number in range(FILES):
        n = ROWS_PER_FILE
        first = number * n
        table = pa.table({
            "id": pa.array(range(first, first + n), pa.int64()),
            "city": pa.array(rnd.choices(["Berlin", "Lima", "Nairobi", "Osaka", "Tbilisi"], k=n)),
            "fare": pa.array([rnd.randrange(300, 9000) / 100 for _ in range(n)], pa.float64()),
            # Random bits: these 8 bytes a row do not compress, on no path.
            "token": pa.Array.from_buffers(pa.int64(), n, [None, pa.py_buffer(rnd.randbytes(8 * n))]),
        })
        pq.write_table(table, os.path.join(path, f"{number}.parquet"))
    open(os.path.join(path, ".complete"), "w").close()
    return path


def die_with_parent():
    """In the child: SIGTERM when this program is gone, however it went."""
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Processes:
    """What was started, to be stopped in reverse order whatever happens."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []
        self.temporary = os.path.join(os.path.abspath(folder), "tmp")
        shutil.rmtree(self.temporary, ignore_errors=True)

    def start(self, name, command):
        log_path = os.path.join(self.folder, name + ".log")
        os.makedirs(self.temporary, exist_ok=True)
        with open(log_path, "w") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log,
                                       env=dict(os.environ, TMPDIR=self.temporary),
                                       start_new_session=True, preexec_fn=die_with_parent)
        process.name, process.log_path = name, log_path
        self.running.append(process)
        return process

    def wait_ready(self, process, ready):
        end = time.monotonic() + START_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                what = f"ended with status {process.returncode}" if process.returncode is not None \
                    else f"was not ready after {START_SECONDS} s"
                raise Failure(f"the {process.name} {what}; its last words:\n{tail(process.log_path)}")
            time.sleep(0.02)

    def stop(self):
        """Returns the names of those that did not end by themselves with status 0."""
        bad = []
        while self.running:
            process = self.running.pop()
            died = process.poll() is not None
            process.stdin.close()  # for Ballista's processes that is the end
            if not died and process.name == "proxy":
                process.terminate()
            try:
                status = process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                status = "killed"
            if status != 0 or died:
                bad.append(f"{process.name} ({status})")
        shutil.rmtree(self.temporary, ignore_errors=True)
        return bad


def tail(path, lines=15):
    with open(path, errors="replace") as f:
        return "".join("    " + line for line in f.readlines()[-lines:])


def read_lines(path):
    with open(path, errors="replace") as f:
        return f.read().splitlines()


def says_ready(process):
    return lambda: "ready" in read_lines(process.log_path)


def answers_200(url):
    def check():
        try:
            return urllib.request.urlopen(url, timeout=2).status == 200
        except OSError:
            return False
    return check


def stream_records(path):
    """The proxy's records of finished DoGet streams, from its JSON log."""
    records = []
    for line in read_lines(path):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("method") == "DoGet" and "grpc_status" in record:
            records.append(record)
    return records


def wait_for_streams(path, seen, need):
    """The records after the first `seen`, once the good ones carried `need` bytes."""
    end = time.monotonic() + LOG_SECONDS
    while True:
        records = stream_records(path)[seen:]
        good = [r for r in records if r["grpc_status"] == "OK"]
        if good and sum(r["bytes"] for r in good) >= need:
            return records
        if time.monotonic() > end:
            raise Failure(f"no proof that the result came through the proxy: its log has "
                          f"{len(good)} streams with grpc-status 0 and "
                          f"{sum(r['bytes'] for r in good):,} bytes where the result has at least {need:,}")
        time.sleep(0.02)


def show(record):
    keys = ("job", "stage", "partition", "executor", "datapath", "bytes", "first_byte_ms",
            "duration_ms", "grpc_status", "ended_by")
    print("       " + " ".join(f"{k}={record[k]}" for k in keys if k in record), flush=True)


def say_privileges():
    """Kernel datapaths need privileges that a container often lacks. The proxy works all the same."""
    with open("/proc/self/status") as f:
        effective = next(int(line.split()[1], 16) for line in f if line.startswith("CapEff"))

    def has(capability):
        return effective >> capability & 1

    if not has(CAP_SYS_ADMIN) and not (has(CAP_BPF) and has(CAP_NET_ADMIN)):
        say("no privileges for BPF here (CAP_BPF, CAP_NET_ADMIN): every stream stays on the relay "
            "datapath, which needs none")


def start_cluster(processes, ports):
    scheduler_port, executor_port, shim_port, proxy_port, admin_port = ports
    python = sys.executable
    node = os.path.join(HERE, "ballista_node.py")
    scheduler = f"127.0.0.1:{scheduler_port}"

    try:
        socket.create_server(("127.0.0.1", EXECUTOR_GRPC_PORT)).close()
    except OSError as error:
        raise Failure(f"Ballista's Python executor needs 127.0.0.1:{EXECUTOR_GRPC_PORT} and takes no other "
                      f"port; it is taken ({error.strerror})")
    say(f"starting Ballista: scheduler on port {scheduler_port}, executor on {executor_port}")
    process = processes.start("scheduler", [python, node, "scheduler", scheduler])
    processes.wait_ready(process, says_ready(process))
    process = processes.start("executor", [python, node, "executor", f"127.0.0.1:{executor_port}", scheduler])
    processes.wait_ready(process, says_ready(process))
    process = processes.start("shim", [python, os.path.join(HERE, "advertise_shim.py"), f"127.0.0.1:{shim_port}",
                                       scheduler, f"127.0.0.1:{proxy_port}"])
    processes.wait_ready(process, says_ready(process))

    command = [options.proxy, "serve", "--listen", f"127.0.0.1:{proxy_port}", "--admin", f"127.0.0.1:{admin_port}",
               "--allow-loopback", "--log-format", "json"]
    say("starting " + " ".join(command))
    proxy = processes.start("proxy", command)
    processes.wait_ready(proxy, answers_200(f"http://127.0.0.1:{admin_port}/readyz"))
    for line in read_lines(proxy.log_path):
        print("       " + line, flush=True)
    say_privileges()
    return proxy


def run_query(context, proxy, sql, need):
    """Runs it, proves it, returns (result as a table, its stream records, seconds)."""
    import pyarrow as pa

    seen = len(stream_records(proxy.log_path))
    say("query: " + sql)
    begin = time.monotonic()
    table = pa.Table.from_batches(context.sql(sql).collect())
    seconds = time.monotonic() - begin
    return table, wait_for_streams(proxy.log_path, seen, need(table)), seconds


def print_rows(table):
    widths = [max(len(str(v)) for v in [name] + column.to_pylist())
              for name, column in zip(table.column_names, table.columns)]
    rows = [table.column_names] + list(zip(*(column.to_pylist() for column in table.columns)))
    for row in rows:
        print("       " + "  ".join(str(v).rjust(w) for v, w in zip(row, widths)), flush=True)


def demo(processes):
    data = make_data(options.folder)
    ports = free_ports(5)
    proxy = start_cluster(processes, ports)

    from ballista import BallistaSessionContext
    context = BallistaSessionContext(f"df://127.0.0.1:{ports[2]}",
                                     cluster_config={"datafusion.execution.target_partitions": str(FILES)})
    context.register_parquet("trips", data)

    table, records, seconds = run_query(
        context, proxy, "select city, count(*) as trips, round(avg(fare), 2) as fare from trips "
        "group by city order by city", lambda t: 8 * t.num_rows)
    if table.num_rows != 5 or sum(table.column("trips").to_pylist()) != FILES * ROWS_PER_FILE:
        raise Failure(f"wrong result: {table.to_pydict()}")
    print_rows(table)
    say(f"{table.num_rows} rows in {seconds:.2f} s; what the proxy says about them:")
    for record in records:
        show(record)

    table, records, seconds = run_query(context, proxy, "select * from trips", lambda t: 8 * t.num_rows)
    if table.num_rows != FILES * ROWS_PER_FILE:
        raise Failure(f"wrong result: {table.num_rows} rows")
    say(f"{table.num_rows:,} rows in {seconds:.2f} s; what the proxy says about them:")
    for record in records:
        show(record)
    say(f"{sum(r['bytes'] for r in records):,} bytes of results went through the proxy, on datapath "
        + ", ".join(sorted({r.get("datapath", "?") for r in records})))


def how_to_go_on():
    print(f"""
How to go on
  Run the proxy where your clients can reach it and your executors are reachable from:
      {options.proxy} serve --listen 0.0.0.0:50060 --allow-cidr 10.0.0.0/8
  and have the scheduler send the clients to it:
      ballista-scheduler --advertise-flight-endpoint PROXY_HOST:50060        (Ballista 55)
      ballista-scheduler --advertise-flight-sql-endpoint PROXY_HOST:50060    (Ballista 52 to 54)
  Clients and executors stay as they are. All flags: {options.proxy} serve --help
  Logs of this run: {options.folder}/*.log""", flush=True)


def main():
    def interrupt(number, _frame):
        raise KeyboardInterrupt(signal.Signals(number).name)

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    processes = Processes(options.folder)
    status = 1
    try:
        demo(processes)
        status = 0
    except Failure as failure:
        print(f"quickstart: {failure}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("quickstart: interrupted", file=sys.stderr, flush=True)
        status = 130
    except Exception as error:  # the client's errors have many types
        print(f"quickstart: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C does not leave anything behind
        bad = processes.stop()
    say("everything is stopped")
    if bad:
        print(f"quickstart: did not end cleanly: {', '.join(bad)}", file=sys.stderr, flush=True)
        status = status or 1
    if status == 0:
        how_to_go_on()
    sys.stdout.flush()
    # The client's threads have nothing left to do; do not wait for them.
    os._exit(status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxy", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--elapsed", type=float, default=0, help="seconds since the quickstart began")
    options = parser.parse_args()
    started = time.monotonic()
    main()
