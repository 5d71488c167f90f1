# SPDX-License-Identifier: Apache-2.0
"""
Faults that other proxies have had and that no other file here is about, named by their number in
docs/scenarios.md, which says for each fault of that list which cases show that we do not have it.
"""
import os
import re
import time

from peers import wire
from peers.executor import reply
from peers.foreign import ForeignSockmap
from peers.harness import CASES, SCALE, case, check
from peers.load import Executors, Fetch
from peers.proxy import DATAPATH
from peers.rawexec import RawExecutor, data, head, trailers
from cases_request import SMALL, check_clean

WIDE = 2**30
PROMOTE_AFTER = 65536
PAGE = os.path.join(os.path.dirname(__file__), "../../docs/scenarios.md")
IDS = ("A1 A2 A4 A5 A6 A8 A9 A11 A13 A14 A15 A16 A17 A18 A19 A21 B1 B2 B3 B5 "
       "D1 D2 D3 D4 D5 D7 D8").split()


def counted(size, seed):
    """Bytes that tell where they belong: no eight of them come twice."""
    return b"".join((seed << 32 | i).to_bytes(8, "little") for i in range((size + 7) // 8))[:size]


def in_frames(number, content, size=16384):
    return b"".join(data(number, content[i:i + size]) for i in range(0, len(content), size))


def check_datapath(p, wanted):
    """With a kernel datapath asked for, at least `wanted` streams went by it."""
    if DATAPATH == "sockmap":
        p.wait_idle()
        spliced = sum(r["datapath"] == "sockmap" for r in p.stream_lines())
        check(spliced >= wanted, "%d of %d streams were spliced", spliced, len(p.stream_lines()))


def indexing(value):
    """Answers whose header blocks use a dynamic table of 4096 bytes, whatever SETTINGS said."""
    def script(call):
        call.wait_request()
        with call.link.cond:
            call.link.h2.encoder.header_table_size = 4096
            call.link.h2.encoder.table_size_changes.clear()
            call.head(extra=[("x-from", value)])
        call.send(SMALL)
        call.trailers(0, extra=[("x-from", value)])
    return script


@case("scenario/a6-client-that-changes-its-table-size")
def _(t):
    """
    SETTINGS_HEADER_TABLE_SIZE 4096, 0, 100, 4096, 1, each also changed while an answer is under way. The
    client's decoder wants the update that RFC 7541 section 4.2 demands after a size below the one in use.
    """
    table = {"held": None}

    def waits(call):
        call.wait_request()
        call.head(extra=[("x-from", "waits"), ("x-long", "l" * 200)])
        table["held"] = call
    x, y, z = t.executor(reply(SMALL)), t.executor(waits), t.executor(indexing("z"))
    c = t.client(t.proxy())
    for size in (4096, 0, 100, 4096, 1):
        check_clean(c.get(x).wait_done(), SMALL)
        s = c.get(y)
        s.wait_head()
        c.change_settings({wire.HEADER_TABLE_SIZE: size})
        c.get(z).wait_done()  # right or failed: z breaks the rules
        table["held"].send(SMALL)
        table["held"].trailers(0, extra=[("x-from", "waits")])
        check_clean(s.wait_done(), SMALL)
        check(not c.violation and not c.closed, "with a table of %d: %s", size, c.violation)
    t.tolerate_violations = not c.violation  # z's may be cut off


@case("scenario/a19-control-frames-stay-with-their-connection")
def _(t):
    """SETTINGS, PING and GOAWAY(0) in one segment: what answers them does not go to the next connection."""
    def script(conn):
        if len(conn.executor.connections) == 1:
            conn.send(wire.settings({wire.MAX_CONCURRENT_STREAMS: 7}) + wire.frame(wire.PING, 0, 0, b"stale..1")
                      + wire.goaway(0))
            conn.finish()
            return
        conn.start()
        while True:
            n = conn.request()
            conn.take(n, len(SMALL))
            conn.send(head(n) + data(n, SMALL) + trailers(n))
    x = RawExecutor(script)
    t.stack.callback(x.close)
    c = t.client(t.proxy())
    results = [c.get(x).wait_done() for _ in range(4)]
    for s in results[1:]:
        check_clean(s, SMALL)
    check(results[0].clean or results[0].status in (2, 14), "the first: %s", results[0].describe())
    for k in x.connections[1:]:
        acks = [f for f in k.frames if f.kind in (wire.SETTINGS, wire.PING) and f.flags & wire.ACK]
        check([f.kind for f in acks] == [wire.SETTINGS], "the second connection got the ACKs %s", acks)
    return f"first: {results[0].describe()}"


def time_waits(addresses):
    ports = {f"{int(a.rsplit(':', 1)[1]):04X}" for a in addresses}
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f][1:]
    return sum(r[3] == "06" and bool({r[1][-4:], r[2][-4:]} & ports) for r in rows)


@case("scenario/b5-50000-tiny-results", limit=150)
def _(t):
    """Results of 0 to 64 bytes: connections to executors scale with these, not with the fetches."""
    x, p = Executors(t, 3), t.proxy()
    count = max(2000, int(50000 * SCALE))
    speed = Fetch(t, p, x, "-n", count, "-j", 4, "-m", 8, size="0-64", seconds=120).check_all_right(count)
    p.wait_idle()
    dials, waits = p.metric("dials"), time_waits(x.addresses)
    check(dials <= 24 and waits <= 24, "%d connections made to 3 executors, %d in TIME_WAIT", dials, waits)
    return f"{count} results, {speed}; {dials:.0f} connections made, {waits} in TIME_WAIT"


@case("scenario/d1-bytes-around-promotion", limit=150)
def _(t):
    """
    A pair is promoted when the executor has used all its credit. What it may say without credit, a PING
    and the trailers, then comes cut at each byte and a little earlier or later: what lies in the socket
    when the kernel takes over is neither lost, nor late, nor out of order.
    """
    first, rest = 2**20, 3 * 16384  # what is granted at once is 1 MiB
    plan = [(cut, pause) for cut in range(0, 18) for pause in (0, 0.005)]

    def script(conn):
        conn.start()
        while True:
            n = conn.request()
            cut, pause, seed = state["now"]
            content = counted(first + rest, seed)
            ping, end = wire.frame(wire.PING, 0, 0, b"promoted"), trailers(n)
            conn.take(n, first)
            conn.send(head(n) + in_frames(n, content[:first]))
            if seed % 2:
                time.sleep(pause)
                conn.send(ping[:cut])
                time.sleep(pause)
                conn.send(ping[cut:])
                conn.take(n, rest)
                conn.send(in_frames(n, content[first:]))
            time.sleep(pause)
            conn.send(end[:cut])
            time.sleep(pause)
            conn.send(end[cut:])
            if seed % 2:
                conn.wait(lambda: conn.has(wire.PING), "PING ACK")
    state = {}
    p = t.proxy("--promote-after", str(PROMOTE_AFTER))
    for i, (cut, pause) in enumerate(plan):
        for seed in (2 * i, 2 * i + 1):
            state["now"] = cut, pause, seed
            x = RawExecutor(script)
            c = t.client(p, window=first, conn_window=WIDE)
            s = c.get(x)
            s.auto = False
            s.wait_bytes(first)
            if seed % 2:
                s.grant(rest)
            check_clean(s.wait_done(), counted(first + (rest if seed % 2 else 0), seed))
            c.close()
            x.close()
            check(not x.errors, "cut at %d, pause %g s: %s", cut, pause, x.errors)
    check_datapath(p, len(plan) // 2)
    return f"{2 * len(plan)} results"


@case("scenario/d3-fin-behind-a-result-that-waits", limit=90)
def _(t):
    """DATA, trailers and FIN in one segment while the client does not read: it gets all of it."""
    first, more, last = 2 * 2**20, 37 * 16384, 10000
    content = counted(first + more + last, 3)

    def script(conn):
        conn.start()
        n = conn.request()
        conn.send(head(n))
        for i in range(0, first + more, 16384):
            if i == first:
                conn.wait(lambda: conn.released, "the reader stops", 20)
            conn.take(n, 16384)
            conn.send(data(n, content[i:i + 16384]))
        conn.take(n, last)
        conn.send(data(n, content[first + more:]) + trailers(n))
        conn.finish()
        conn.executor.finished = True
    p = t.proxy("--promote-after", str(PROMOTE_AFTER))
    for _ in range(5):
        x = RawExecutor(script)
        x.finished = False
        t.stack.callback(x.close)
        c = t.client(p, window=2**20, conn_window=WIDE, receive_buffer=65536)
        s = c.get(x)
        s.wait_bytes(first, 20)
        c.pause_reading()
        release(x)
        p.wait(lambda: x.finished, "the executor has said everything", 20)
        time.sleep(0.05)  # FIN has come, and nobody reads
        c.resume_reading()
        check_clean(s.wait_done(20), content)
        c.close()
    check_datapath(p, 5)


def release(executor):
    connection = executor.connection()
    with connection.cond:
        connection.released = True
        connection.cond.notify_all()


@case("scenario/d8-another-agents-sockmap")
def _(t):
    """The proxy's connections are in another program's sockmap before it splices them: results are right."""
    content = counted(2 * 2**20, 8)

    def script(conn):
        conn.start()
        while True:
            n = conn.request()
            conn.send(head(n))
            conn.wait(lambda: conn.executor.connections[0].released, "enrolment")
            for i in range(0, len(content), 16384):
                conn.take(n, 16384)
                conn.send(data(n, content[i:i + 16384]))
            conn.send(trailers(n))
    x = RawExecutor(script)
    t.stack.callback(x.close)
    p = t.proxy("--promote-after", str(PROMOTE_AFTER))
    c = t.client(p, window=2**20, conn_window=WIDE)
    foreign = ForeignSockmap()
    t.stack.callback(foreign.close)
    s = c.get(x)
    s.wait_head()
    taken = foreign.take(p.pid, x.address[1])
    check(taken == 1, "%d connections to the executor found", taken)
    release(x)
    check_clean(s.wait_done(), content)
    check_clean(c.get(x).wait_done(), content)
    c.close()
    p.wait_idle()
    ways = [(r["datapath"], r.get("datapath_why")) for r in p.stream_lines()]
    check(ways[0][0] == "relay", "the first stream went by %s", ways[0])
    return f"streams went by {ways}"


@case("scenario/all-have-a-case", naive="pass")
def _(t):
    """Each fault of docs/scenarios.md names cases that exist, and more than one."""
    with open(PAGE) as f:
        rows = {m[1]: m[2] for m in re.finditer(r"^\| ([ABD]\d+) \|(.*)\|$", f.read(), re.M)}
    check(list(rows) == IDS, "rows are %s", list(rows))
    cases, root, total = {c.name for c in CASES}, os.path.dirname(PAGE), set()
    for name, row in rows.items():
        cited = re.findall(r"`([a-z0-9-]+/[\w.-]+)`", row)
        check(len(cited) > 1, "%s: only %s", name, cited)
        for c in cited:
            check(c in cases or os.path.exists(os.path.join(root, "../tests", c)), "%s: there is no %s", name, c)
        total |= set(cited)
    return f"{len(rows)} faults, {len(total)} cases and programs"
