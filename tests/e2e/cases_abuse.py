# SPDX-License-Identifier: Apache-2.0
"""Peers that want to hurt: floods of cheap frames, endless header blocks, resets without end. The one
connection is limited or ended; memory stays flat; everybody else is served as if nothing were."""
import random
import select
import socket
import struct
import time

from hpack import Encoder

from peers import wire
from peers.client import DO_GET
from peers.executor import reply
from peers.harness import SANITIZED, case, check, within
from peers.rawexec import RawExecutor, data, head, trailers
from cases_death import check_told
from cases_flow import WIDE
from cases_request import SMALL, check_clean

MIB = 2**20
GROWTH = 24 * MIB  # of resident memory, while one peer misbehaves
BUDGET = 64 * MIB  # bytes that a flooder sends at most
SECONDS = 4


class Flooder:
    """A client without any library: sends as fast as it is let, and reads or does not."""

    def __init__(self, proxy, window=65535):
        self.sock = socket.create_connection(proxy.address)
        self.sock.setblocking(False)
        self.received = bytearray()
        self.sent = 0
        self.ended = False
        self.send(wire.PREFACE + wire.settings({wire.ENABLE_PUSH: 0, wire.INITIAL_WINDOW_SIZE: window}), read=True)

    def send(self, data, read=False, seconds=SECONDS):
        """True when all of it went out; False when the other side ended it or takes no more."""
        view, end = memoryview(data), time.monotonic() + seconds
        while view and not self.ended and time.monotonic() < end:
            ready = select.select([self.sock] if read else [], [self.sock], [], 0.2)
            try:
                if ready[0]:
                    self._read()
                if ready[1]:
                    n = self.sock.send(view[:1 << 18])
                    self.sent += n
                    view = view[n:]
            except (ConnectionError, BrokenPipeError):
                self.ended = True
        return not view and not self.ended

    def _read(self):
        chunk = self.sock.recv(1 << 18)
        self.received += chunk
        del self.received[:-(1 << 20)]
        if not chunk:
            self.ended = True

    def wait_end(self, seconds):
        """Reads until the other side ends the connection; False when it does not."""
        end = time.monotonic() + seconds
        while not self.ended and time.monotonic() < end:
            if select.select([self.sock], [], [], 0.1)[0]:
                try:
                    self._read()
                except ConnectionError:
                    self.ended = True
        return self.ended


def request_block():
    return Encoder().encode([(":method", "POST"), (":scheme", "http"), (":path", DO_GET), (":authority", "a"),
                             ("te", "trailers"), ("content-type", "application/grpc")], huffman=False)


def flood(t, chunk, before=b"", read=False, must_end=True, ticket=False):
    """
    Sends `before` once and then chunk(n) for n = 0, 1, ... until the budget is used up or the proxy has had
    enough; meanwhile a well-behaved client fetches. must_end: the connection has to be ended.
    """
    x, p = t.executor(reply(SMALL)), t.proxy()
    good = t.client(p)
    check_clean(good.get(x).wait_done(), SMALL)
    at_start, peak = p.rss(), 0
    f = Flooder(p)
    f.send(before(x) if callable(before) else before, read=read)
    number, begin = 0, time.monotonic()
    while f.sent < BUDGET and time.monotonic() < begin + SECONDS:
        data = b"".join(chunk(n) for n in range(number, number + 1000))
        number += 1000
        if not f.send(data, read=read, seconds=1):
            break
        peak = max(peak, p.rss())
        check_clean(good.get(x).wait_done(within(2)), SMALL)
    ended = f.wait_end(within(3)) if must_end else f.ended
    peak = max(peak, p.rss())
    check(peak - at_start < GROWTH or SANITIZED, "resident memory went from %d to %d bytes", at_start, peak)
    check(ended or not must_end, "the connection is still open after %d frames, %d bytes", number, f.sent)
    f.sock.close()
    check_clean(good.get(x).wait_done(within(2)), SMALL)
    check(len(x.calls) < 5000, "the executor got %d requests", len(x.calls))
    t.tolerate_violations = True  # towards executors: they see what the flood left of requests
    return f"{number} frames, {f.sent / MIB:.1f} MiB sent, {'ended' if ended else 'open'}, {(peak - at_start) / MIB:+.1f} MiB"


@case("abuse/rapid-reset")
def _(t):
    """CVE-2023-44487: requests that are reset at once."""
    block = request_block()

    def chunk(n):
        stream = 2 * n + 1
        return wire.frame(wire.HEADERS, wire.END_HEADERS, stream, block) + wire.rst_stream(stream, wire.CANCEL)
    return flood(t, chunk, read=True)


@case("abuse/made-you-reset")
def _(t):
    """CVE-2025-8671: the proxy is made to reset streams itself, by WINDOW_UPDATE of 0."""
    block = request_block()

    def chunk(n):
        stream = 2 * n + 1
        return wire.frame(wire.HEADERS, wire.END_HEADERS, stream, block) + wire.window_update(stream, 0)
    return flood(t, chunk, read=True)


@case("abuse/continuation-flood")
def _(t):
    """CVE-2024-28182 and its kind: a header block without end, of empty and of full frames."""
    start = wire.frame(wire.HEADERS, 0, 1, request_block())
    empty = flood(t, lambda n: wire.frame(wire.CONTINUATION, 0, 1), before=start)
    full = flood(t, lambda n: wire.frame(wire.CONTINUATION, 0, 1, b"\x00\x01a\x7f\x81\x03" + b"v" * 512),
                 before=start)
    return f"{empty}; {full}"


@case("abuse/ping-flood-unread")
def _(t):
    """CVE-2019-9512: PINGs whose answers nobody reads."""
    return flood(t, lambda n: wire.frame(wire.PING, 0, 0, struct.pack(">Q", n)))


@case("abuse/settings-flood-unread")
def _(t):
    """CVE-2019-9515."""
    return flood(t, lambda n: wire.settings({wire.MAX_FRAME_SIZE: 16384 + n % 100}))


@case("abuse/settings-of-many-entries", naive="pass")
def _(t):
    """Frames of thousands of settings. All are answered and read, so that may go on if it hurts nobody."""
    entries = struct.pack(">HI", 0x77, 1) * 2700
    return flood(t, lambda n: wire.frame(wire.SETTINGS, 0, 0, entries) if n % 40 == 0 else b"", read=True,
                 must_end=False)


@case("abuse/priority-and-unknown-frames", naive="pass")
def _(t):
    """Legal and worthless. It may go on for ever, if it costs nobody else anything."""
    return flood(t, lambda n: wire.frame(wire.PRIORITY, 0, 2 * n + 1, bytes(5)) + wire.frame(0xee, 0, 0, b"x" * 50),
                 read=True, must_end=False)


@case("abuse/empty-data-flood")
def _(t):
    """CVE-2019-9518: a request of empty DATA frames without end."""
    start = wire.frame(wire.HEADERS, wire.END_HEADERS, 1, request_block())
    return flood(t, lambda n: wire.frame(wire.DATA, 0, 1), before=start, read=True)


@case("abuse/window-update-flood", naive="pass")
def _(t):
    """One byte of credit at a time; it has to end only when it overflows, and it costs nobody anything."""
    return flood(t, lambda n: wire.window_update(0, 1), read=True, must_end=False)


@case("abuse/header-list-too-large")
def _(t):
    """A header of 60 KB in legal frames: refused, the connection may stay or go."""
    block = Encoder().encode([(":method", "POST"), (":scheme", "http"), (":path", DO_GET), (":authority", "a"),
                              ("x-long", "v" * 60_000)], huffman=False)
    frames = [block[i:i + 16384] for i in range(0, len(block), 16384)]
    data = wire.frame(wire.HEADERS, wire.END_STREAM, 1, frames[0])
    data += b"".join(wire.frame(wire.CONTINUATION, wire.END_HEADERS if f is frames[-1] else 0, 1, f) for f in frames[1:])
    x, p = t.executor(reply(SMALL)), t.proxy()
    f = Flooder(p)
    f.send(data, read=True)
    f.wait_end(0.5)
    check(f.ended or len(f.received) > 30, "no answer: %s", bytes(f.received))
    check_clean(t.client(p).get(x).wait_done(), SMALL)
    check(len(x.calls) == 1, "it was forwarded")


@case("abuse/hpack-bomb", naive="pass")
def _(t):
    """A block of 16 KB that decodes to 60 MB: 4 KB in the table and thousands of references to it."""
    x, p = t.executor(reply(SMALL)), t.proxy()
    at_start = p.rss()
    good = t.client(p)
    for _ in range(20):
        f = Flooder(p)
        first = b"\x40\x01a\x7f\x81\x1e" + b"v" * 3968
        block = request_block() + first + b"\xbe" * 12_000
        f.send(wire.frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, 1, block), read=True)
        f.wait_end(0.05)
        f.sock.close()
        check_clean(good.get(x).wait_done(within(2)), SMALL)
    growth = p.rss() - at_start
    check(growth < GROWTH or SANITIZED, "resident memory grew by %d bytes", growth)
    check(all(len(c.headers) < 100 for c in x.calls), "it was forwarded")
    return f"{growth / MIB:+.1f} MiB"


@case("abuse/window-of-one-byte-on-many-streams", naive="pass")
def _(t):
    """CVE-2019-9511: results in frames of one byte, on 100 streams at once."""
    x = t.executor(reply(SMALL[:100]))
    p = t.proxy()
    c = t.client(p, window=1, conn_window=WIDE)
    at_start = p.rss()
    streams = [c.get(x) for _ in range(100)]
    for s in streams:
        check_clean(s.wait_done(within(20)), SMALL[:100])
    check(p.rss() - at_start < GROWTH or SANITIZED, "resident memory grew by %d bytes", p.rss() - at_start)


@case("abuse/executor-that-floods")
def _(t):
    """PING, SETTINGS, CONTINUATION or RST_STREAM without end from an executor: its own stream fails."""
    def floods(make):
        def script(call):
            call.wait_request()
            sent = 0
            data = b"".join(make(call.number, n) for n in range(2000))
            call.link.sock.settimeout(1)
            try:
                while sent < BUDGET and not call.released_at:
                    call.link.sock.sendall(data)
                    sent += len(data)
            except OSError:
                pass
            call.link.sock.settimeout(None)
            if not call.released_at:
                call.link.abort()
        return script
    kinds = {
        "ping": lambda s, n: wire.frame(wire.PING, 0, 0, struct.pack(">Q", n)),
        "settings": lambda s, n: wire.settings({wire.MAX_FRAME_SIZE: 16384 + n}),
        "continuation": lambda s, n: wire.frame(wire.CONTINUATION if n else wire.HEADERS, 0, s, b"\x00\x01a\x01b" * 100),
        "rst": lambda s, n: wire.rst_stream(2 * n + 1, wire.CANCEL),
    }
    p = t.proxy("--response-timeout", "3s")
    good = t.executor(reply(SMALL))
    c = t.client(p, conn_window=WIDE)
    report = []
    for name, make in kinds.items():
        at_start = p.rss()
        s = c.get(t.executor(floods(make)))
        check_clean(c.get(good).wait_done(within(2)), SMALL)
        s.wait_done(within(8))
        check(not c.closed, "%s: the client's connection ended", name)
        check_told(s, s.done_at, name)
        growth = p.rss() - at_start
        check(growth < GROWTH or SANITIZED, "%s: resident memory grew by %d bytes", name, growth)
        report.append(f"{name} {s.describe()}")
    t.tolerate_violations = True  # executors': they do not listen
    return "; ".join(report)


@case("abuse/random-bytes", naive="pass")
def _(t):
    """After a good preface, noise in frames and without."""
    rnd = random.Random(9)
    x, p = t.executor(reply(SMALL)), t.proxy("--handshake-timeout", "2s")
    good = t.client(p)
    for turn in range(200):
        f = Flooder(p)
        for _ in range(20):
            kind, flags, stream = rnd.randrange(12), rnd.randrange(256), rnd.choice((0, 1, 3, 5, 2**31 - 1))
            f.send(wire.frame(kind, flags, stream, rnd.randbytes(rnd.randrange(60))) if turn % 2
                   else rnd.randbytes(rnd.randrange(100)), seconds=0.2)
        f.sock.close()
        if turn % 20 == 0:
            check_clean(good.get(x).wait_done(within(2)), SMALL)
    check_clean(good.get(x).wait_done(within(2)), SMALL)


@case("abuse/executor-without-flow-control")
def _(t):
    """
    64 MiB of DATA whatever the credit, to a client that does not read: memory stays flat, the result is
    not taken for complete, and it is the executor who is blamed.
    """
    goal = BUDGET

    def script(conn):
        conn.start()
        n = conn.request()
        conn.send(head(n))
        conn.data(n, MIB)  # well-behaved until it is spliced
        conn.wait(lambda: conn.released, "the client stops", 20)
        conn.sock.settimeout(2)
        try:
            for _ in range(goal // 16384):
                conn.sock.sendall(data(n, bytes(16384)))
            conn.sock.sendall(trailers(n))
        except OSError:
            pass
        conn.executor.finished = True
    x = RawExecutor(script)
    x.finished = False
    t.stack.callback(x.close)
    p = t.proxy("--promote-after", "65536", "--client-inflight", str(4 * MIB))
    other, good = t.client(p), t.executor(reply(SMALL))
    c = t.client(p, window=2**20, conn_window=WIDE, receive_buffer=65536)
    s = c.get(x)
    s.wait_bytes(MIB, 20)
    c.pause_reading()
    at_start = p.rss()
    with x.connection().cond:
        x.connection().released = True
        x.connection().cond.notify_all()
    p.wait(lambda: x.finished, "the executor has given up", 30)
    check_clean(other.get(good).wait_done(within(2)), SMALL)
    growth = p.rss() - at_start
    check(growth < GROWTH or SANITIZED, "resident memory grew by %d bytes", growth)
    c.resume_reading()
    s.wait_done(within(8))
    check(not s.clean, "taken for complete: %s", s.describe())
    c.close()
    p.wait(lambda: len(p.stream_lines()) == 2, "both streams told")
    r = next(r for r in p.stream_lines() if r["grpc_status"] != "OK")
    check(r["ended_by"] == "executor", "told: %s", r)
    return f"{r['datapath']}, {r.get('reason')}; {s.describe()}"
