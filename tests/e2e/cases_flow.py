# SPDX-License-Identifier: Apache-2.0
"""Flow control: windows of every size, changed at any time, exhausted, overflowed. The h2 library at
both ends watches that no window is ever exceeded."""
import random
import time

from peers import wire
from peers.executor import reply
from peers.harness import SCALE, case, check
from peers.link import Failed
from cases_request import SMALL, check_clean

MEGABYTE = random.Random(2).randbytes(1_000_003)
QUIET = 0.3  # long enough for a frame that should not come
WIDE = 2**24


def payload(megabytes):
    return MEGABYTE * max(1, round(megabytes * SCALE))


@case("flow/windows-64k", naive="pass")
def _(t):
    data = payload(8)
    s = t.client(t.proxy()).get(t.executor(reply(data)))
    check_clean(s.wait_done(30), data)


@case("flow/windows-5m", naive="pass")
def _(t):
    data = payload(30)
    s = t.client(t.proxy(), window=2 * 2**20, conn_window=5 * 2**20).get(t.executor(reply(data)))
    check_clean(s.wait_done(30), data)


@case("flow/windows-of-a-few-bytes", naive="pass")
def _(t):
    x = t.executor(reply(SMALL[:400]))
    c = t.client(t.proxy(), window=1)
    streams = [c.get(x) for _ in range(8)]
    for s in streams:
        check_clean(s.wait_done(30), SMALL[:400])


@case("flow/window-zero-until-granted", naive="pass")
def _(t):
    """Window 0: the head comes, no DATA; then exactly what is granted."""
    s = t.client(t.proxy(), window=0, conn_window=WIDE).get(t.executor(reply(SMALL)))
    s.auto = False
    s.wait_head()
    s.client.quiet(lambda: s.data or s.done, "DATA or an end without a window", QUIET)
    s.grant(1234)
    s.wait_bytes(1234)
    s.client.quiet(lambda: len(s.data) > 1234 or s.done, "more DATA than granted", QUIET)
    s.grant(len(SMALL))
    check_clean(s.wait_done(), SMALL)


@case("flow/empty-result-needs-no-window", naive="pass")
def _(t):
    s = t.client(t.proxy(), window=0).get(t.executor(reply(b"")))
    check_clean(s.wait_done(), b"")


def unread_beside(t, x, y, big, sibling):
    c = t.client(t.proxy(), window=65535, conn_window=WIDE)
    unread = c.get(x)
    unread.auto = False
    unread.wait_bytes(65535)
    for _ in range(2):
        check_clean(c.get(y).wait_done(30), sibling)
    check(len(unread.data) == 65535 and not unread.done, "the unread stream: %s", unread.describe())
    unread.auto = True
    unread.grant(65535)
    check_clean(unread.wait_done(30), big)


@case("flow/unread-stream-beside-siblings", naive="pass")
def _(t):
    data = payload(8)
    x = t.executor(reply(data))
    unread_beside(t, x, x, data, data)


@case("flow/unread-stream-beside-siblings-elsewhere")
def _(t):
    """The same with the siblings at another executor."""
    data = payload(8)
    unread_beside(t, t.executor(reply(data)), t.executor(reply(data[::-1])), data, data[::-1])


@case("flow/connection-window-drained", naive="pass")
def _(t):
    """The client grants nothing on the connection: all streams stop at its window, then go on."""
    x = t.executor(reply(MEGABYTE))
    c = t.client(t.proxy(), window=2**20 * 4)
    c.auto = False
    streams = [c.get(x) for _ in range(3)]
    c.wait(lambda: sum(len(s.data) for s in streams) == 65535, "the whole connection window used")
    c.quiet(lambda: sum(len(s.data) for s in streams) > 65535, "more DATA than the connection window", QUIET)
    c.auto = True
    c.grant(65535)
    for s in streams:
        check_clean(s.wait_done(30), MEGABYTE)


@case("flow/one-byte-at-a-time", naive="pass")
def _(t):
    """Credit given byte by byte on both levels is all used; none is lost to rounding."""
    c = t.client(t.proxy(), window=0)
    s = c.get(t.executor(reply(SMALL[:200])))
    s.auto = c.auto = False
    s.wait_head()
    for n in range(1, 201):
        s.grant(1)
        s.wait_bytes(n)
    check_clean(s.wait_done(), SMALL[:200])


@case("flow/initial-window-lowered-mid-stream", naive="pass")
def _(t):
    """Windows move by the signed difference, and nothing arrives after the ACK that the new one forbids."""
    c = t.client(t.proxy(), window=60000, conn_window=WIDE)
    s = c.get(t.executor(reply(MEGABYTE)))
    s.auto = False
    s.wait_bytes(60000)
    c.change_settings({wire.INITIAL_WINDOW_SIZE: 10})  # window is now 10 - 60000
    s.grant(59000)
    c.quiet(lambda: len(s.data) > 60000, "DATA although the window is negative", QUIET)
    s.grant(991)
    s.wait_bytes(60001)
    c.quiet(lambda: len(s.data) > 60001, "more than the one byte granted", QUIET)
    other = c.get(t.executors[0])
    other.auto = False
    other.wait_bytes(10)
    c.quiet(lambda: len(other.data) > 10, "a new stream with more than the new window", QUIET)
    c.change_settings({wire.INITIAL_WINDOW_SIZE: 2**31 - 1})
    check_clean(s.wait_done(30), MEGABYTE)
    check_clean(other.wait_done(30), MEGABYTE)


@case("flow/initial-window-lowered-at-full-speed", naive="pass")
def _(t):
    """While DATA is flowing: the h2 library judges every byte that comes after the ACK by the new window."""
    data = MEGABYTE * 40
    c = t.client(t.proxy(), window=2**20, conn_window=WIDE)
    s = c.get(t.executor(reply(data)))
    for size in (1000, 2**20, 0, 500_000, 16384, 2**20, 1):
        s.wait_bytes(len(s.data) + 300_000, 20)
        c.change_settings({wire.INITIAL_WINDOW_SIZE: size})
        if size < 400_000:
            s.grant(400_000)
    c.change_settings({wire.INITIAL_WINDOW_SIZE: 2**22})
    check_clean(s.wait_done(30), data)


@case("flow/overflow-of-a-stream-window")
def _(t):
    """RFC 9113 6.9.1: that stream ends with FLOW_CONTROL_ERROR; its sibling does not notice."""
    x = t.executor(reply(MEGABYTE))
    c = t.client(t.proxy(), conn_window=WIDE)
    a, b = c.get(x), c.get(x)
    a.auto = False
    a.wait_bytes(65535)
    c.raw(wire.window_update(a.number, 2**31 - 1) + wire.window_update(a.number, 2**31 - 1))
    a.wait_done()
    check(a.reset == wire.FLOW_CONTROL_ERROR, "the stream: %s", a.describe())
    check_clean(b.wait_done(30), MEGABYTE)
    t.executors[0].wait_call(0).wait_released()


@case("flow/overflow-of-the-connection-window")
def _(t):
    c = t.client(t.proxy())
    c.get(t.executor(reply(SMALL))).wait_done()
    c.raw(wire.window_update(0, 2**31 - 1) * 2)
    c.wait(lambda: c.goaways and c.closed, "GOAWAY and close")
    check(c.goaways[-1][1] == wire.FLOW_CONTROL_ERROR, "GOAWAY %s", c.goaways)


@case("flow/overflow-by-settings")
def _(t):
    """A larger INITIAL_WINDOW_SIZE that lifts an open stream's window over 2^31-1."""
    def silent(call):
        call.wait_request()
        call.head()
    c = t.client(t.proxy())
    s = c.get(t.executor(silent))
    s.wait_head()
    c.raw(wire.window_update(s.number, 2**31 - 1 - 65535) + wire.settings({wire.INITIAL_WINDOW_SIZE: 65536}))
    c.wait(lambda: c.goaways and c.closed, "GOAWAY and close")
    check(c.goaways[-1][1] == wire.FLOW_CONTROL_ERROR, "GOAWAY %s", c.goaways)


@case("flow/increment-of-zero")
def _(t):
    """RFC 9113 6.9: PROTOCOL_ERROR, of the stream or of the connection."""
    x = t.executor(reply(MEGABYTE))
    c = t.client(t.proxy(), conn_window=WIDE)
    s = c.get(x)
    s.auto = False
    s.wait_bytes(65535)
    c.raw(wire.window_update(s.number, 0))
    s.wait_done()
    check(s.reset == wire.PROTOCOL_ERROR or c.goaways, "the stream: %s", s.describe())
    if not c.closed:
        c.raw(wire.window_update(0, 0))
        c.wait(lambda: c.goaways and c.closed, "GOAWAY and close")
    check(c.goaways[-1][1] == wire.PROTOCOL_ERROR, "GOAWAY %s", c.goaways)


def stream_until_reset(call):
    call.wait_request()
    call.head()
    while True:
        call.send(MEGABYTE)


@case("flow/credit-comes-back-after-client-resets", naive="pass", limit=90)
def _(t):
    """200 streams reset with DATA in flight: no credit of any connection is lost with them."""
    def script(call):
        stream_until_reset(call) if ("x-endless", "1") in call.headers else reply(MEGABYTE)(call)
    x = t.executor(script)
    c = t.client(t.proxy())
    for _ in range(200):
        s = c.get(x, metadata=[("x-endless", "1")])
        s.wait_bytes(20_000)
        s.rst()
        c.frames.clear()
    check_clean(c.get(x).wait_done(30), MEGABYTE)


@case("flow/credit-comes-back-after-executor-resets", limit=90)
def _(t):
    """The same when the executor resets. (The client must not take its NO_ERROR for an end.)"""
    def script(call):
        call.wait_request()
        call.head()
        if call.index < 100:
            call.send(MEGABYTE[:40_000])
            call.rst((wire.INTERNAL_ERROR, wire.NO_ERROR, wire.CANCEL)[call.index % 3])
        else:
            call.send(MEGABYTE)
            call.trailers(0)
    x = t.executor(script)
    c = t.client(t.proxy())
    for _ in range(100):
        s = c.get(x).wait_done()
        check(s.status not in (None, 0) or s.reset not in (None, wire.NO_ERROR, wire.CANCEL), "got %s", s.describe())
        c.frames.clear()
    check_clean(c.get(x).wait_done(30), MEGABYTE)


@case("flow/settings-that-an-executor-gets")
def _(t):
    """Design, session rule 2."""
    x = t.executor(reply(SMALL))
    check_clean(t.client(t.proxy()).get(x).wait_done(), SMALL)
    first = x.links[0].frames[0]
    check(first.kind == wire.SETTINGS, "the first frame was %s", first)
    got = {int.from_bytes(first.payload[i:i + 2], "big"): int.from_bytes(first.payload[i + 2:i + 6], "big")
           for i in range(0, len(first.payload), 6)}
    for key, value in ((wire.HEADER_TABLE_SIZE, 0), (wire.ENABLE_PUSH, 0), (wire.INITIAL_WINDOW_SIZE, 0)):
        check(got.get(key) == value, "SETTINGS were %s", got)
    check(got.get(wire.MAX_FRAME_SIZE, 16384) == 16384, "MAX_FRAME_SIZE for a client of 16384: %s", got)


@case("flow/large-frames-where-the-client-allows-them", naive="pass")
def _(t):
    """A client with MAX_FRAME_SIZE 1 MiB and one with 16384 at the same executor: neither gets too large frames."""
    def script(call):
        call.wait_request()
        call.head()
        call.send(MEGABYTE, frame_size=2**24)
        call.trailers(0)
    x, p = t.executor(script), t.proxy()
    for size in (2**20, 16384, 100_000):
        c = t.client(p, window=2**22, conn_window=WIDE, settings={wire.MAX_FRAME_SIZE: size})
        s = c.get(x).wait_done(30)
        check_clean(s, MEGABYTE)
        longest = max(len(f.payload) for f in s.frames)
        check(longest <= size, "a frame of %d bytes to a client that allows %d", longest, size)


@case("flow/max-frame-size-lowered-mid-stream", naive="pass")
def _(t):
    c = t.client(t.proxy(), window=200_000, conn_window=WIDE, settings={wire.MAX_FRAME_SIZE: 60_000})

    def script(call):
        call.wait_request()
        call.head()
        call.send(MEGABYTE, frame_size=2**24)
        call.trailers(0)
    s = c.get(t.executor(script))
    s.auto = False
    s.wait_bytes(200_000)
    c.change_settings({wire.MAX_FRAME_SIZE: 16384})
    seen = len(s.frames)
    s.auto = True
    s.grant(200_000)
    check_clean(s.wait_done(30), MEGABYTE)
    # The executor may have begun the next frame before it heard of it; what the client acknowledged counts.
    late = [len(f.payload) for f in s.frames[seen + 20:]]
    check(max(late) <= 16384, "frames of %d bytes long after the change", max(late))


@case("flow/stopped-reader-stops-the-executor", naive="pass")
def _(t):
    """
    A client that grants 2 GiB and then reads nothing: the executor is stopped by the proxy's bound on
    bytes in flight, and another client of the same executor is served.
    """
    sent = []

    def script(call):
        call.wait_request()
        call.head()
        if call.index:
            call.send(MEGABYTE)
            call.trailers(0)
            return
        for _ in range(80):
            call.send(MEGABYTE)
            sent.append(len(MEGABYTE))
        call.trailers(0)
    x, p = t.executor(script), t.proxy("--client-inflight", "1MiB")
    c = t.client(p, window=2**31 - 1, conn_window=2**31 - 1, receive_buffer=65536)
    s = c.get(x)
    s.wait_bytes(1)
    c.pause_reading()
    before, still = -1, 0
    while still < 10:  # until nothing has moved for a second
        now = x.calls[0].sent
        still = still + 1 if now == before else 0
        before = now
        time.sleep(0.1)
    check(before < 24 * 2**20, "the executor could send %d bytes to a client that does not read", before)
    check_clean(t.client(p, window=2**22, conn_window=WIDE).get(x).wait_done(20), MEGABYTE)
    c.resume_reading()
    check_clean(s.wait_done(30), MEGABYTE * 80)
    return f"executor stopped after {before} bytes"


@case("flow/own-frames-between-others")
def _(t):
    """
    Two executors at full speed to a client with small buffers that reads slowly, pings and asks with
    bad tickets all the time: whoever writes to the client, every frame arrives whole and in order.
    """
    data = [MEGABYTE * 2, MEGABYTE[::-1] * 2]
    xs = [t.executor(reply(d)) for d in data]
    c = t.client(t.proxy(), window=2**20, conn_window=WIDE, receive_buffer=8192)
    streams = [c.get(x) for x in xs]
    bad, pings = [], 0
    while not all(s.done for s in streams) and pings < 3000:
        c.pause_reading()
        pings += 1
        c.ping(b"%8d" % pings)
        if pings % 10 == 0:
            bad.append(c.request(b""))
        time.sleep(0.001)
        c.resume_reading()
        time.sleep(0.002)
    for s, d in zip(streams, data):
        check_clean(s.wait_done(30), d)
    for s in bad:
        s.wait_done(20)
        check(s.status == 3, "a bad ticket between: %s", s.describe())
    c.wait(lambda: len(c.pongs) == pings, "every PING answered", 20)
    return f"{pings} pings, {len(bad)} bad tickets"
