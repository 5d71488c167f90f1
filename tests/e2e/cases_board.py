# SPDX-License-Identifier: Apache-2.0
"""What a process shows in its pinned maps, seen by bpftool and by our own commands: while it runs, is
stopped, has died, was of another version, or is not alone. Each case has a --pin-dir of its own."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

from peers import proxy as proxy_module, wire
from peers.harness import Skip, case, check
from peers.link import Failed
from cases_flow import MEGABYTE, WIDE

BPF_FS = "/sys/fs/bpf"
NOBODY = 65534
PERIOD = 1.0  # how often a process writes
BOARD = {"build", "totals", "drops", "streams", "clients", "executors"}


def tool(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise Skip(f"{name} is not installed")
    return path


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=40)


def on_bpffs():
    if os.geteuid():
        raise Skip("pinned maps need root")
    if not os.path.ismount(BPF_FS):
        raise Skip(f"{BPF_FS} is not mounted")


def pin_dir(t):
    """A folder that is gone, with all that was pinned there, when the case is over."""
    on_bpffs()
    path = f"{BPF_FS}/flightsplice-e2e-{os.getpid()}"
    t.stack.callback(shutil.rmtree, path, ignore_errors=True)
    return path


def dump(path):
    """The entries of a pinned map as bpftool prints them with the map's types, [(key, value)]."""
    done = run(tool("bpftool"), "-j", "map", "dump", "pinned", path)
    if done.returncode:
        raise Failed(f"bpftool cannot dump {path}: {done.stdout or done.stderr}")
    entries = [e.get("formatted", e) for e in json.loads(done.stdout or "[]")]
    return [(e["key"], e["value"]) for e in entries]


def command(name, folder, *flags):
    return run(proxy_module.BINARY, name, "--pin-dir", folder, *flags)


def look(name, folder):
    done = command(name, folder, "--json")
    if done.returncode:
        raise Failed(f"flightsplice {name}: status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def rows(name, folder):
    return look(name, folder)[name]


def wait(p, predicate, what):
    """Waits until it is true of what is shown; maps may not be there yet."""
    def holds():
        with contextlib.suppress(Failed, IndexError, KeyError):
            return predicate()
        return False
    p.wait(holds, what)


def start(t, folder, *flags):
    p = t.proxy("--pin-dir", folder, *flags)
    line = [r for r in p.log_lines() if r.get("msg") == "serving"][0]
    return p, line


def stuck(t, p, job="stuck-7"):
    """A stream whose client grants nothing: (client, stream, executor)."""
    x = t.executor(lambda call: (call.wait_request(), call.head(), call.send(MEGABYTE), call.trailers(0)))
    c = t.client(p, window=4000, conn_window=WIDE)
    s = c.get(x, job=job, stage=3, partition=14)
    s.auto = False
    s.wait_bytes(4000)
    return c, s, x


def finish(s):
    s.auto = True
    s.grant(2**21)
    s.wait_done()
    check(bytes(s.data) == MEGABYTE and s.clean, "the stream is not whole: %s", s.describe())


def name_of(address):
    return f"{address[0]}:{address[1]}"


# ---- bpftool


@case("board/bpftool")
def _(t):
    folder = pin_dir(t)
    tool("bpftool")
    p, line = start(t, folder)
    check(line["pins"] == folder, "the start line says pins=%s", line.get("pins"))
    c, s, x = stuck(t, p)
    wait(p, lambda: dump(f"{folder}/streams")[0][1]["waits_for"] == "client window", "the stream in the map")
    (key, v), = dump(f"{folder}/streams")
    check(set(key) == {"worker", "number"}, "the key is %s", key)
    want = {"job": "stuck-7", "stage": 3, "partition": 14, "executor": name_of(x.address),
            "executor_address": name_of(x.address), "client": name_of(c.sock.getsockname()), "state": "streaming",
            "datapath": "relay", "bytes": 4000, "stream_id": s.number}
    check({k: v.get(k) for k in want} == want, "the stream is shown as %s", v)
    check(v["held_bytes"] > 0, "held_bytes is %s", v["held_bytes"])
    for field in ("since", "opened"):
        check(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", v[field]), "%s is %r", field, v[field])
        age = time.time() - v[f"{field}_unix_ms"] / 1000
        check(0 <= age < 20, "%s_unix_ms is %.1f s ago", field, age)
    (_, client), = dump(f"{folder}/clients")
    check((client["client"], client["streams"], client["streams_waiting_for_client"])
          == (want["client"], 1, 1), "the client is shown as %s", client)
    (_, executor), = [e for e in dump(f"{folder}/executors") if e[1]["streams"]]
    check((executor["executor"], executor["bytes"], executor["streams_waiting_for_client"])
          == (want["executor"], 4000, 1), "the executor is shown as %s", executor)
    (_, build), = dump(f"{folder}/build")
    check((build["pid"], build["schema"], build["listen"]) == (p.pid, 1, name_of(p.address)), "build is %s", build)
    wait(p, lambda: dump(f"{folder}/totals")[0][1]["streams"] == 1, "the stream in totals")
    since = v["since"]
    time.sleep(1.5 * PERIOD)  # it is written again
    check(dump(f"{folder}/streams")[0][1]["since"] == since, "`since` moves although the stream does not")
    finish(s)
    c.close()
    for name in ("streams", "clients"):
        wait(p, lambda: not dump(f"{folder}/{name}"), f"{name} empty")
    p.stop()
    check(not os.path.exists(folder), "%s is still there after the end: %s", folder, os.path.exists(folder)
          and os.listdir(folder))


@case("board/drops")
def _(t):
    folder = pin_dir(t)
    tool("bpftool")
    p, _ = start(t, folder)
    c, s, _ = stuck(t, p)
    s.rst()  # what is held for it is lost
    denied = c.request(wire.ticket("169.254.169.254", 80))
    denied.wait_done()

    def shown():
        return {k["reason"]: v for k, v in dump(f"{folder}/drops")}
    wait(p, lambda: shown()["bytes stream_closed"]["bytes"] > 0, "dropped bytes by reason")
    wait(p, lambda: sum(v["times"] for k, v in shown().items() if k.startswith("policy ")) == 1, "the refused address")
    for reason, v in shown().items():
        check(v["meaning"], "the reason %s has no meaning", reason)
    told = {d["reason"]: d["bytes"] for d in look("stats", folder)["drops"]}
    check(told["bytes stream_closed"] == shown()["bytes stream_closed"]["bytes"], "stats says %s", told)
    text = command("stats", folder).stdout
    check("bytes stream_closed" in text and "policy" in text, "stats prints %s", text)


@case("board/bounded", limit=120)
def _(t):
    """Entries beyond a worker's share are counted, not shown, and all is well again afterwards."""
    folder = pin_dir(t)
    share = 16384 // 64
    p, _ = start(t, folder, "--workers", "64", "--max-streams", "1000")
    x = t.executor(lambda call: (call.wait_request(), call.head(), call.wait_released(60)),
                   settings={wire.MAX_CONCURRENT_STREAMS: 1000})
    c = t.client(p)
    streams = [c.get(x) for _ in range(share + 44)]
    for s in streams:
        s.wait_head()
    wait(p, lambda: look("stats", folder)["processes"][0]["totals"]["streams_left_out"] == 44, "44 streams left out")
    check(len(rows("streams", folder)) == share, "%d streams are shown", len(rows("streams", folder)))
    check("not shown, for lack of room: 44 streams" in command("stats", folder).stdout, "stats does not say so")
    for s in streams[:100]:
        s.rst()
    wait(p, lambda: len(rows("streams", folder)) == share + 44 - 100, "the others to be shown")
    wait(p, lambda: look("stats", folder)["processes"][0]["totals"]["streams_left_out"] == 0, "nothing left out")
    totals = look("stats", folder)["processes"][0]["totals"]
    check(totals["board_errors"] == 0, "%s writes failed", totals["board_errors"])


# ---- our commands


@case("board/commands-while-stopped")
def _(t):
    folder = pin_dir(t)
    p, _ = start(t, folder)
    c, s, x = stuck(t, p)
    wait(p, lambda: rows("streams", folder)[0]["waits_for"] == "client window", "the stream to be shown")
    check(look("streams", folder)["processes"][0]["process"] == "running", "the process is not said to run")
    p.signal(signal.SIGSTOP)
    try:
        wait(p, lambda: look("streams", folder)["processes"][0]["process"] == "stopped", "the process to be stopped")
        v, = rows("streams", folder)
        check((v["job"], v["partition"], v["executor"], v["waits_for"], v["bytes"])
              == ("stuck-7", 14, name_of(x.address), "client window", 4000), "streams --json: %s", v)
        check(rows("clients", folder)[0]["client"] == v["client"], "clients --json does not show the client")
        check(name_of(x.address) in [e["executor"] for e in rows("executors", folder)], "executors --json does not")
        done = command("streams", folder)
        check(done.returncode == 0 and re.search(r"stuck-7 +3 +14 .*client window", done.stdout),
              "streams prints %s", done.stdout)
        check(f"process {p.pid} is stopped" in done.stderr, "streams does not say that it is stopped: %s", done.stderr)
        for name, text in (("executors", name_of(x.address)), ("clients", v["client"]), ("stats", p.address[0])):
            done = command(name, folder)
            check(done.returncode == 0 and text in done.stdout, "%s prints %s", name, done.stdout)
    finally:
        p.signal(signal.SIGCONT)
    finish(s)


@case("board/kernel-bytes-while-stopped")
def _(t):
    """The kernel goes on forwarding, and its counters are what is shown."""
    folder = pin_dir(t)
    check_kernel()
    first, more = 3 * len(MEGABYTE), 100_000
    go = {}

    def script(call):
        call.wait_request()
        call.head()
        call.send(MEGABYTE * 3)
        go["call"] = call
        call.wait_released(60)
    p, line = start(t, folder, "--datapath", "sockmap", "--promote-after", "65536")
    s = t.client(p, window=2**20, conn_window=WIDE).get(t.executor(script))
    s.wait_bytes(first)
    wait(p, lambda: rows("streams", folder)[0]["spliced"] and rows("streams", folder)[0]["bytes"] == first,
         "the stream to be spliced")
    check(os.path.exists(f"{folder}/pairs"), "pairs are not pinned beside: %s", os.listdir(folder))
    p.signal(signal.SIGSTOP)
    try:
        before = look("streams", folder)["processes"][0]["totals"]["written_unix_ms"]
        go["call"].send(bytes(more))
        s.wait_bytes(first + more)
        told = look("streams", folder)
        check(told["streams"][0]["bytes"] == first + more, "shown are %d bytes of %d", told["streams"][0]["bytes"],
              first + more)
        check(told["processes"][0]["totals"]["written_unix_ms"] == before, "the process wrote although stopped")
    finally:
        p.signal(signal.SIGCONT)


def check_kernel():
    done = run(proxy_module.BINARY, "selftest", "--json")
    sockmap = json.loads(done.stdout)["datapaths"]["sockmap"]
    if not sockmap["usable"]:
        raise Skip(f"the self-test refuses sockmap here: {sockmap['reason']}")


@case("board/watch")
def _(t):
    folder = pin_dir(t)
    p, _ = start(t, folder)
    s = t.client(p, window=2**20, conn_window=WIDE).get(t.executor(
        lambda call: (call.wait_request(), call.head(), [call.send(MEGABYTE[:100_000]) or time.sleep(0.05)
                                                         for _ in range(400)])))
    s.wait_head()
    watch = t.process([proxy_module.BINARY, "streams", "--json", "--watch", "--pin-dir", folder],
                      stdout=subprocess.PIPE, text=True)
    rates = []
    while len(rates) < 3:
        line = watch.stdout.readline()
        check(line, "--watch has ended")
        rates += [r["bytes_per_second"] for r in json.loads(line)["streams"] if r["bytes_per_second"]]
    # 100,000 bytes at most 20 times a second, less when the machine is busy.
    check(all(50_000 < r < 4_000_000 for r in rates), "the rates are %s", rates)
    check(not watch.poll(), "--watch has ended")


@case("board/top", limit=90)
def _(t):
    folder = pin_dir(t)
    tmux = tool("tmux")
    p, _ = start(t, folder)
    c, s, x = stuck(t, p, job="zebra")
    c2, s2, x2 = stuck(t, p, job="antelope")
    wait(p, lambda: len(rows("streams", folder)) == 2, "both streams to be shown")
    base = [tmux, "-S", os.path.join(t.folder, "tmux"), "-f", "/dev/null"]
    t.stack.callback(run, *base, "kill-server")
    done = run(*base, "new-session", "-d", "-x", "160", "-y", "24", "-e", "TERM=screen",
               f"exec {os.path.abspath(proxy_module.BINARY)} top --pin-dir {folder}")
    check(done.returncode == 0, "tmux: %s", done.stderr)

    def screen():
        return run(*base, "capture-pane", "-p").stdout

    def shows(pattern, what):
        try:
            p.wait(lambda: re.search(pattern, screen(), re.S), what)
        except Failed:
            raise Failed(f"top does not show {what}: {screen()}") from None

    def press(*keys):
        run(*base, "send-keys", *keys)

    shows(r"zebra", "a stream")
    shows(r"antelope", "the other stream")
    shows(rf"process {p.pid} on {name_of(p.address)}.*ready", "the process")
    shows(r"client window", "what a stream waits for")
    press("s", "s", "s", "s")  # from RATE: BYTES, GRANTED, HELD, AGE
    shows(r"by AGE\n.*zebra.*antelope", "the older stream first")
    press("r")
    shows(r"by AGE reversed\n.*antelope.*zebra", "the younger stream first")
    press("/")
    run(*base, "send-keys", "-l", "ZEB")
    shows(r"only rows with: ZEB", "the filter being typed")
    press("Enter")
    shows(r"only 'ZEB' \(1 hidden\)", "the filter")
    check("antelope" not in screen(), "the filter hides nothing: %s", screen())
    press("Escape")
    shows(r"antelope", "all rows again")
    press("2")
    shows(rf"EXECUTOR .*{name_of(x.address)}", "executors")
    press("3")
    shows(r"CLIENT .*" + re.escape(name_of(c.sock.getsockname())), "clients")
    press("4")
    shows(r"BYTES SINCE START.*relay", "datapaths")
    press("5")
    shows(r"MEANING", "drops")
    press("1")
    run(*base, "resize-window", "-x", "60", "-y", "12")
    shows(r"(?m)^JOB +STAGE", "the table in a small window")
    check(all(len(line) <= 60 for line in screen().splitlines()), "lines are longer than the window: %s", screen())
    run(*base, "resize-window", "-x", "160", "-y", "24")
    shows(r"WAITS FOR", "the table in a large window again")
    p.signal(signal.SIGSTOP)
    try:
        shows(rf"process {p.pid} is stopped", "that the process is stopped")
        shows(r"zebra", "the streams of a stopped process")
    finally:
        p.signal(signal.SIGCONT)
    press("p")
    shows(r"PAUSED", "that it is paused")
    finish(s)
    wait(p, lambda: len(rows("streams", folder)) == 1, "the stream to end")
    press("r")
    shows(r"by AGE\n", "another order while paused")
    check("zebra" in screen(), "a paused screen has changed: %s", screen())
    press("p")
    p.wait(lambda: "zebra" not in screen(), "the ended stream gone from the screen")
    press("q")
    p.wait(lambda: run(*base, "list-sessions").returncode, "top to end")
    finish(s2)


# ---- other processes, other versions


@case("board/second-instance")
def _(t):
    folder = pin_dir(t)
    a, _ = start(t, folder)
    b, line = start(t, folder)
    check(line["pins"] == f"{folder}/2" and folder in line.get("pins_why", ""), "the second one's line: %s", line)
    _, sa, _ = stuck(t, a, job="of-a")
    _, sb, _ = stuck(t, b, job="of-b")
    wait(a, lambda: {(s["pid"], s["job"]) for s in rows("streams", folder)} == {(a.pid, "of-a"), (b.pid, "of-b")},
         "the streams of both")
    check({s["job"] for s in rows("streams", f"{folder}/2")} == {"of-b"}, "the sub-folder has others' streams")
    check(re.search(rf"{b.pid} +of-b", command("streams", folder).stdout), "no PID column with two processes")
    finish(sa)
    a.stop()
    check(sorted(os.listdir(folder)) == ["2"], "the first one has left %s", os.listdir(folder))
    check([s["job"] for s in rows("streams", folder)] == ["of-b"], "the second one is not shown any more")
    c, line = start(t, folder)
    check(line["pins"] == folder, "the free folder is not taken: %s", line)
    finish(sb)
    b.stop()
    c.stop()
    check(not os.path.exists(folder), "the last one has left its folder")


@case("board/leftovers")
def _(t):
    """A process that dies leaves its last words; the next one replaces them, and nothing else."""
    folder = pin_dir(t)
    bpftool = tool("bpftool")
    a, _ = start(t, folder)
    b, _ = start(t, folder)
    for p, job in ((a, "last-words"), (b, "of-b")):
        stuck(t, p, job=job)
        wait(p, lambda: job in {s["job"] for s in rows("streams", folder)}, "the stream to be shown")
    for p in (a, b):
        p.expect_exit = -signal.SIGKILL
        p.kill()
    told = look("streams", folder)
    check({(i["pid"], i["process"]) for i in told["processes"]} == {(a.pid, "gone"), (b.pid, "gone")},
          "processes: %s", told["processes"])
    check({s["job"] for s in told["streams"]} == {"last-words", "of-b"}, "leftovers show %s", told["streams"])
    check(f"process {a.pid} is gone" in command("streams", folder).stderr, "it is not said that it is gone")
    run(bpftool, "map", "create", f"{folder}/strange", "type", "array", "key", "4", "value", "4", "entries", "1",
        "name", "strange")
    check(os.path.exists(f"{folder}/strange"), "bpftool did not make a map")
    c, line = start(t, folder)
    check(line["pins"] == folder, "the start line says %s", line)
    check(not os.path.exists(f"{folder}/2"), "the other leftover is still there")
    told = look("streams", folder)
    check([i["pid"] for i in told["processes"]] == [c.pid] and not told["streams"], "shown is still %s", told)
    c.stop()
    check(os.listdir(folder) == ["strange"], "after the end there are %s", os.listdir(folder))


@case("board/other-schema")
def _(t):
    """Maps of another version are not interpreted, and are replaced, never reused."""
    folder = pin_dir(t)
    bpftool = tool("bpftool")
    p, _ = start(t, folder)
    value = bytearray(raw_build(bpftool, folder))
    p.stop()
    os.mkdir(folder)
    value[0:4] = (99).to_bytes(4, "little")
    value[8:56] = b"9.9.9".ljust(48, b"\0")
    make_map(bpftool, folder, "build", bytes(value))
    for name in BOARD - {"build"}:
        make_map(bpftool, folder, name, bytes(1024))
    done = command("streams", folder)
    check(done.returncode == 1 and not done.stdout, "status %s, output %s", done.returncode, done.stdout)
    check("9.9.9" in done.stderr and "schema 99" in done.stderr, "it says %s", done.stderr)
    # The same schema, but not the layout that goes with it.
    value[0:4] = (1).to_bytes(4, "little")
    os.unlink(f"{folder}/build")
    make_map(bpftool, folder, "build", bytes(value))
    done = command("streams", folder)
    check(done.returncode in (0, 1), "status %s", done.returncode)
    check(not json_streams(done.stdout), "maps of a wrong size are shown: %s", done.stdout)
    check(done.stderr, "nothing is said about maps of a wrong size")
    p, line = start(t, folder)
    check(line["pins"] == folder, "the start line says %s", line)
    stuck(t, p, job="new")
    wait(p, lambda: [s["job"] for s in rows("streams", folder)] == ["new"], "the new process to be shown")


def json_streams(text):
    return [line for line in text.splitlines() if line and not line.startswith("JOB ")]


def raw_build(bpftool, folder):
    done = run(bpftool, "-j", "map", "lookup", "pinned", f"{folder}/build", "key", "0", "0", "0", "0")
    return bytes(int(byte, 16) for byte in json.loads(done.stdout)["value"])


def make_map(bpftool, folder, name, value):
    path = f"{folder}/{name}"
    done = run(bpftool, "map", "create", path, "type", "array", "key", "4", "value", str(len(value)), "entries", "1",
               "name", name)
    if not done.returncode:
        done = run(bpftool, "map", "update", "pinned", path, "key", "0", "0", "0", "0", "value",
                   *[str(byte) for byte in value])
    check(done.returncode == 0, "bpftool: %s", done.stdout + done.stderr)


# ---- without


@case("board/no-maps")
def _(t):
    folder = pin_dir(t)
    for name in ("streams", "executors", "clients", "stats", "top"):
        done = command(name, folder)
        check(done.returncode == 1 and not done.stdout and folder in done.stderr and "no pinned maps" in done.stderr,
              "%s: status %s, %s %s", name, done.returncode, done.stdout, done.stderr)
    done = command("streams", os.path.join(os.path.abspath(t.folder), "none"))
    check(done.returncode == 1 and "not a bpf file system" in done.stderr, "it says %s", done.stderr)
    done = command("streams", folder, "--jsn")
    check(done.returncode == 2 and "--jsn" in done.stderr, "status %s: %s", done.returncode, done.stderr)


@case("board/no-privilege")
def _(t):
    """Without capabilities there are no maps, the start line says why, and everything else works."""
    on_bpffs()
    folder = pin_dir(t)
    setpriv = tool("setpriv")
    wrapper = os.path.join(os.path.abspath(t.folder), "unprivileged")
    binary = os.path.abspath(proxy_module.BINARY)
    with open(wrapper, "w") as f:
        f.write(f'#!/bin/sh\nexec {setpriv} --bounding-set -all --inh-caps -all --ambient-caps -all '
                f'--reuid {NOBODY} --regid {NOBODY} --clear-groups {binary} "$@"\n')
    os.chmod(wrapper, 0o755)
    p, _ = start(t, folder)  # for the command to be refused
    done = run(wrapper, "streams", "--pin-dir", folder)
    if "Permission denied" in done.stderr and binary in done.stderr:
        raise Skip("an unprivileged user cannot run the binary where it is")
    check(done.returncode == 1 and "root" in done.stderr and "CAP_" in done.stderr, "streams: status %s, %s",
          done.returncode, done.stderr)
    p.stop()
    proxy_module.BINARY = wrapper  # this case is a process of its own
    p, line = start(t, folder, "--datapath", "auto")
    check(line["pins"] == "off" and ("ermi" in line["pins_why"] or "CAP_BPF" in line["pins_why"]), "it says %s", line)
    _, s, _ = stuck(t, p)
    finish(s)
    check(not os.path.exists(folder), "%s was made", folder)
