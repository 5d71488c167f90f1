# SPDX-License-Identifier: Apache-2.0
"""
Each budget of docs/limits.md is used up, by whoever it limits. Then its counter says so and no other one
does, the log names it, resident memory is where it was, and a result that is half delivered to somebody
else at that moment comes whole.
"""
import os
import re
import socket
import struct

from peers import wire
from peers.executor import reply
from peers.harness import SANITIZED, case, check, within
from peers.rawexec import TRAILER_BLOCK, data, head, headers, literal, trailers
from cases_abuse import GROWTH, Flooder, request_block
from cases_flow import MEGABYTE, WIDE
from cases_request import SMALL, check_clean
from cases_rules import Neighbour, raw_executor

CASES = {}  # budget: case


def counters(p):
    """{budget: count} of those that are not 0."""
    found = {}
    for key, value in p.metrics().items():
        match = re.fullmatch(r'flightsplice_budget_exhausted_total\{budget="(\w+)"\}', key)
        if match and value:
            found[match[1]] = value
    return found


def budget(name, *flags, also=()):
    """@budget("client_ping") def _(t, p): ... uses it up. also: budgets that may go with it."""
    def add(function):
        @case("budget/" + name)
        def run(t):
            p = t.proxy(*flags)
            neighbour = Neighbour(t, t.client(p))
            before = p.rss()
            check(not counters(p), "exhausted before it began: %s", counters(p))
            note = function(t, p)
            p.wait(lambda: name in counters(p), f"the counter of {name}; there are {counters(p)}", within(5))
            check(counters(p).keys() <= {name, *also}, "counted were %s", counters(p))
            p.wait(lambda: any(f"budget {name}" in str(r.get("reason")) for r in p.log_lines()),
                   f"a line in the log that names {name}", within(2))
            grown = p.rss() - before
            check(grown < GROWTH or SANITIZED, "resident memory grew by %d bytes", grown)
            neighbour.finish()
            return f"{note or ''} {counters(p)}, {grown / 2**20:+.1f} MiB"
        CASES[name] = run
        return function
    return add


# ---------------------------------------------------------------------------------- of a client


def flood(p, chunk, before=b"", count=40000, read=True):
    """chunk(n) until the proxy ends the connection; a Failed when it does not."""
    f = Flooder(p)
    f.send(before, read=read)
    for n in range(0, count, 500):
        if not f.send(b"".join(chunk(k) for k in range(n, n + 500)), read=read):
            break
    check(f.wait_end(within(5)), "still open after %d bytes", f.sent)
    check(b"budget" in f.received, "the client is not told which budget: %s", bytes(f.received[-100:]))
    f.sock.close()
    return f"{f.sent / 1000:.0f} kB sent"


OPEN = wire.frame(wire.HEADERS, wire.END_HEADERS, 1, request_block())


@budget("client_ping")
def _(t, p):
    return flood(p, lambda n: wire.frame(wire.PING, 0, 0, struct.pack(">Q", n)))


@budget("client_settings")
def _(t, p):
    return flood(p, lambda n: wire.settings({wire.MAX_FRAME_SIZE: 16384 + n % 100}))


@budget("client_empty_data")
def _(t, p):
    return flood(p, lambda n: wire.frame(wire.DATA, 0, 1), before=OPEN)


@budget("client_window_update")
def _(t, p):
    return flood(p, lambda n: wire.window_update(0, 1))


@budget("client_control")
def _(t, p):
    """Everything that says nothing, in turn."""
    kinds = [wire.frame(wire.PRIORITY, 0, 3, bytes(5)), wire.frame(0xee, 0, 0, b"x"), wire.goaway(0),
             wire.frame(wire.SETTINGS, wire.ACK, 0), wire.frame(wire.PING, wire.ACK, 0, bytes(8)),
             wire.window_update(1, 1000)]
    over = OPEN + wire.rst_stream(1, wire.CANCEL)
    return flood(p, lambda n: kinds[n % len(kinds)], before=over)


@budget("client_reset")
def _(t, p):
    block = request_block()
    return flood(p, lambda n: wire.frame(wire.HEADERS, wire.END_HEADERS, 2 * n + 1, block)
                 + wire.rst_stream(2 * n + 1, wire.CANCEL))


@budget("client_header_bytes")
def _(t, p):
    full = wire.frame(wire.CONTINUATION, 0, 1, bytes(16384))
    return flood(p, lambda n: full, before=wire.frame(wire.HEADERS, 0, 1, request_block()), count=500)


@budget("client_header_frames")
def _(t, p):
    return flood(p, lambda n: wire.frame(wire.CONTINUATION, 0, 1), before=wire.frame(wire.HEADERS, 0, 1, request_block()))


@budget("client_header_time", "--handshake-timeout", "300ms")
def _(t, p):
    """A block that stops between two frames, and one that stops inside its frame."""
    block = request_block()
    for begun in (wire.frame(wire.HEADERS, 0, 1, block), wire.frame(wire.HEADERS, wire.END_HEADERS, 1, block)[:-1]):
        f = Flooder(p)
        f.send(begun, read=True)
        check(f.wait_end(within(3)), "still open")
        check(b"budget client_header_time" in f.received, "told %s", bytes(f.received[-100:]))
        f.sock.close()
    check(counters(p) == {"client_header_time": 2}, "counted were %s", counters(p))


@budget("client_unread")
def _(t, p):
    """A client whose socket is full of a result that it does not read, and that goes on asking."""
    x = t.executor(reply(MEGABYTE * 30))
    c = t.client(p, window=2**30, conn_window=2**30, receive_buffer=4096)
    s = c.get(x)
    s.wait_bytes(1)
    c.pause_reading()
    p.wait(lambda: p.metric("granted_bytes") + p.metric("held_bytes") > 100_000, "the result backs up")
    try:
        for n in range(9000):
            c.raw(wire.frame(wire.PING, 0, 0, struct.pack(">Q", n)))
            if n % 500 == 0 and counters(p):
                break
    finally:
        c.resume_reading()
    p.wait(lambda: counters(p), "the end of it", within(5))


@budget("client_streams", "--max-streams", "4")
def _(t, p):
    """A client that does not look at MAX_CONCURRENT_STREAMS."""
    f = Flooder(p)
    f.send(b"".join(wire.frame(wire.HEADERS, wire.END_HEADERS, n, request_block()) for n in range(1, 12, 2))
           + wire.frame(wire.PING, 0, 0, b"all sent"), read=True)
    while b"all sent" not in f.received and not f.wait_end(0.1):
        pass
    reset = [g.stream for g in wire.FrameSplitter().feed(bytes(f.received), 0) if g.kind == wire.RST_STREAM]
    check(reset == [9, 11], "refused were the streams %s", reset)
    check(not f.ended, "the connection was ended")
    f.sock.close()


@budget("clients", "--max-clients", "3")
def _(t, p):
    clients = [t.client(p) for _ in range(2)]
    refused(p, ("127.0.0.1", 0))
    check(not any(c.closed for c in clients), "one that had room was ended")


@budget("clients_per_source", "--max-clients-per-source", "2")
def _(t, p):
    """The neighbour has one; one address has its two, which another address does not feel."""
    first = t.client(p)
    refused(p, ("127.0.0.1", 0))
    others = [socket.create_connection(p.address, source_address=("127.0.0.2", 0)) for _ in range(2)]
    p.wait(lambda: p.metric("clients") == 4, "two clients from another address")
    refused(p, ("127.0.0.2", 0))
    first.close()
    p.wait(lambda: p.metric("clients") == 3, "one has left")
    check_clean(t.client(p).get(t.executor(reply(SMALL))).wait_done(), SMALL)
    for s in others:
        s.close()


def refused(p, source):
    """A connection from there is told GOAWAY(ENHANCE_YOUR_CALM) and closed."""
    with socket.create_connection(p.address, source_address=source) as s:
        s.settimeout(within(2))
        got = b""
        try:
            while chunk := s.recv(4096):
                got += chunk
        except ConnectionResetError:
            pass
    found = wire.FrameSplitter().feed(got, 0)
    check([f.kind for f in found] == [wire.SETTINGS, wire.GOAWAY], "told %s", found)
    check(found[1].payload[4:8] == struct.pack(">I", wire.ENHANCE_YOUR_CALM), "told %s", found[1].payload)


@budget("memory", "--client-inflight", "1MiB", "--total-inflight", "1MiB", "--workers", "1", "--max-ticket", "16MiB")
def _(t, p):
    """Messages that are announced and do not come. The bound is 1 MiB and 64 more."""
    c = t.client(p)
    announced = struct.pack(">BI", 0, 10_000_000) + b"x"
    streams = []
    while len(streams) < 20 and not any(s.done for s in streams):
        streams.append(c.request(announced, end=False))
        c.ping(b"%8d" % len(streams))
        c.wait(lambda: b"%8d" % len(streams) in c.pongs, "PING answered")
    check(streams[-1].status == 8, "told %s", streams[-1].describe())
    c.raw(b"".join(wire.rst_stream(s.number, wire.CANCEL) for s in streams))
    check(len(streams) == 7, "%d messages of 10 MB had room", len(streams) - 1)
    p.wait(lambda: p.metric("streams") == 1, "they are gone")
    check_clean(c.get(t.executor(reply(SMALL))).wait_done(), SMALL)
    return f"{len(streams) - 1} messages of 10 MB had room;"


# ------------------------------------------------------------------------------- of an executor


def executor_floods(t, p, chunk, answered=False, seconds=20):
    """
    An executor that sends chunk(n, stream) without end, on the second of two streams when the first has to
    be over (answered).
    """
    sent = []

    def script(conn):
        conn.start()
        first = conn.request()
        if answered:
            conn.send(head(first))
            conn.request()
            conn.send(trailers(first))
        for n in range(0, 40000, 500):
            piece = b"".join(chunk(k, first) for k in range(n, n + 500))
            conn.send(piece)
            sent.append(len(piece))
        conn.linger()

    x = raw_executor(t, script)
    c = t.client(p)
    streams = [c.get(x)]
    if answered:
        streams[0].wait_head()
        streams.append(c.get(x))
        check_clean(streams[0].wait_done(), b"")
    s = streams[-1].wait_done(within(seconds))
    check(s.status == 2 and "budget executor" in s.message, "the client is told %s", s.describe())
    check(not c.closed, "the client's connection was ended")
    conn = x.connection()
    conn.wait(lambda: conn.closed, "it is told to calm down", within(30))
    if conn.closed == "fin":  # else its own bytes made the kernel throw away what we said
        check(conn.goaway() == wire.ENHANCE_YOUR_CALM, "the executor is told %s", conn.frames[-1:])
    return f"{sum(sent) / 1000:.0f} kB sent"


@budget("executor_ping")
def _(t, p):
    return executor_floods(t, p, lambda n, s: wire.frame(wire.PING, 0, 0, struct.pack(">Q", n)))


@budget("executor_settings")
def _(t, p):
    return executor_floods(t, p, lambda n, s: wire.settings({wire.MAX_FRAME_SIZE: 16384 + n}))


@budget("executor_empty_data")
def _(t, p):
    return executor_floods(t, p, lambda n, s: head(s) if n == 0 else data(s, b""))


@budget("executor_window_update")
def _(t, p):
    return executor_floods(t, p, lambda n, s: wire.window_update(s, 1))


@budget("executor_control")
def _(t, p):
    kinds = [lambda s: wire.frame(wire.PRIORITY, 0, s, bytes(5)), lambda s: wire.frame(0xee, 0, 0, b"x"),
             lambda s: wire.frame(wire.SETTINGS, wire.ACK, 0), lambda s: wire.frame(wire.PING, wire.ACK, 0, bytes(8)),
             lambda s: headers(s, literal(b":status", b"103"))]
    return executor_floods(t, p, lambda n, s: kinds[n % len(kinds)](s))


@budget("executor_reset")
def _(t, p):
    """Of a stream that is over, beside one that is not."""
    return executor_floods(t, p, lambda n, s: wire.rst_stream(s, wire.CANCEL), answered=True)


@budget("executor_header_bytes")
def _(t, p):
    return executor_floods(t, p, lambda n, s: wire.frame(wire.CONTINUATION if n else wire.HEADERS, 0, s, bytes(16384)))


@budget("executor_header_frames")
def _(t, p):
    return executor_floods(t, p, lambda n, s: wire.frame(wire.CONTINUATION if n else wire.HEADERS, 0, s))


@budget("executor_header_time", "--handshake-timeout", "300ms")
def _(t, p):
    """A block that stops between two frames, and one that stops inside its frame."""
    for part in (lambda s: wire.frame(wire.HEADERS, wire.END_STREAM, s, TRAILER_BLOCK),
                 lambda s: trailers(s)[:-1]):
        def script(conn):
            conn.start()
            number = conn.request()
            conn.send(head(number) + part(number))
            conn.linger()
        s = t.client(p).get(raw_executor(t, script)).wait_done(within(3))
        check(s.status == 2 and "budget executor_header_time" in s.message, "told %s", s.describe())
    check(counters(p) == {"executor_header_time": 2}, "counted were %s", counters(p))


@budget("executor_unread")
def _(t, p):
    """It grants requests windows without end, and reads none of them."""
    def script(conn):
        conn.start({wire.INITIAL_WINDOW_SIZE: 2**20, wire.MAX_CONCURRENT_STREAMS: 1000})
        conn.send(wire.window_update(0, 2**31 - 1 - 65535))
        conn.request()
        conn.reading = False
        conn.wait(lambda: conn.released, "the case goes on", 60)
    x = raw_executor(t, script)
    c = t.client(p)
    body = wire.ticket(*x.address, extra=wire.chunk(15, bytes(63_000)))
    streams = []
    while len(streams) < 250 and not any(s.done for s in streams):
        s = c.request(end=False)
        streams.append(s)
        for i in range(0, len(body), 16000):
            piece = body[i:i + 16000]
            c.wait(lambda: s.done or c.h2.local_flow_control_window(s.number) >= len(piece), "room for a request")
            if not s.done:
                s.send(piece, end=i + 16000 >= len(body))
        c.ping(b"%8d" % len(streams))
        c.wait(lambda: b"%8d" % len(streams) in c.pongs, "PING answered")
    streams[0].wait_done(within(5))
    conn = x.connection()
    with conn.cond:
        conn.reading = conn.released = True
        conn.cond.notify_all()
    check("budget executor_unread" in streams[0].message, "told %s", streams[0].describe())
    for s in streams:
        s.wait_done(within(5))
    return f"{len(streams)} requests of 63 kB"


@case("budget/all-have-a-case")
def _(t):
    """Every counter that the proxy has is one of these, and in the manual."""
    text = t.proxy().get("/metrics")[1]
    names = set(re.findall(r'flightsplice_budget_exhausted_total\{budget="(\w+)"\}', text))
    check(names == CASES.keys(), "without a case: %s; without a counter: %s", names - CASES.keys(), CASES.keys() - names)
    with open(os.path.join(os.path.dirname(__file__), "../../docs/limits.md")) as f:
        told = set(re.findall(r"`(\w+)`", f.read()))
    check(names <= told, "not in docs/limits.md: %s", names - told)
    return f"{len(names)} budgets"
