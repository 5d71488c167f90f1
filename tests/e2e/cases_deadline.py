# SPDX-License-Identifier: Apache-2.0
"""Every wait ends: with the stated code, not before its time and soon after it. Silence that is allowed stays
allowed. (Bounds are short flags here; a late answer is judged with room for a busy machine.)"""
import socket
import time

from peers import wire
from peers.executor import reply
from peers.harness import case, check, check_time, within
from cases_flow import MEGABYTE, QUIET, WIDE
from cases_refused import told
from cases_request import SMALL, check_clean


def between(stream, since, low, high):
    took = (stream.done_at if hasattr(stream, "done_at") else stream) - since
    check(low * 0.9 <= took, "ended after %.2f s, not before %.2f", took, low)
    check_time(took, high + within(0.8), "the end")
    return f"{took:.2f} s"


def silence(call):
    call.wait_request()


def head_then_silence(call):
    call.wait_request()
    call.head()


def mute_after_head(call):
    """The head, and then not even answers to PING."""
    call.wait_request()
    call.head()
    call.link.mute = True


@case("deadline/executor-accepts-only")
def _(t):
    """TCP and nothing else: not reachable, says the table."""
    x = t.executor(silence, speaks=False)
    begin = time.monotonic()
    s = t.client(t.proxy("--handshake-timeout", "400ms")).get(x).wait_done(within(3))
    told(s, 2, "127.0.0.1")
    t.tolerate_violations = True
    return between(s, begin, 0.4, 0.4)


@case("deadline/executor-sends-settings-only")
def _(t):
    x = t.executor(silence)
    begin = time.monotonic()
    s = t.client(t.proxy("--response-timeout", "400ms")).get(x).wait_done(within(3))
    told(s, 4, "127.0.0.1")
    x.calls[0].wait_released()
    return between(s, begin, 0.4, 0.4)


@case("deadline/response-timeout-off", naive="pass")
def _(t):
    """0 = off: a query may think as long as it likes."""
    def script(call):
        call.wait_request()
        time.sleep(1)
        reply(SMALL)(call)
    p = t.proxy("--response-timeout", "0", "--stall-timeout", "200ms", "--idle-timeout", "200ms")
    check_clean(t.client(p).get(t.executor(script)).wait_done(), SMALL)


@case("deadline/early-heads-are-no-answer")
def _(t):
    """103 again and again is not the head that --response-timeout waits for."""
    def script(call):
        call.wait_request()
        while not call.released_at:
            call.link.raw(wire.frame(wire.HEADERS, wire.END_HEADERS, call.number, b"\x08\x03103"))
            time.sleep(0.05)
    begin = time.monotonic()
    s = t.client(t.proxy("--response-timeout", "500ms")).get(t.executor(script)).wait_done(within(4))
    check(s.status == 4 and s.message.startswith("flightsplice:"), "got %s", s.describe())
    return between(s, begin, 0.5, 0.5)


PING_WAIT = 10  # what the proxy gives an executor to answer its PING


@case("deadline/executor-stalls-and-fails-ping")
def _(t):
    """After the head, and inside a message: credit, silence, and no answer to PING."""
    def mute_mid_message(call):
        call.wait_request()
        call.head()
        call.send(SMALL)
        call.link.mute = True
    c = t.client(t.proxy("--stall-timeout", "300ms"))
    begin = time.monotonic()
    streams = [c.get(t.executor(mute_after_head)), c.get(t.executor(mute_mid_message))]
    for s, size in zip(streams, (0, len(SMALL))):
        s.wait_done(within(PING_WAIT + 4))
        check(s.status == 4 and s.message.startswith("flightsplice:") and len(s.data) == size, "got %s", s.describe())
        took = between(s, begin, 0.3, 0.6 + PING_WAIT)
    return took


@case("deadline/silence-with-answered-ping-is-fine", naive="pass")
def _(t):
    """An executor that thinks between two batches, for many times --stall-timeout."""
    def script(call):
        call.wait_request()
        call.head()
        call.send(SMALL)
        time.sleep(1.2)
        call.send(SMALL)
        call.trailers(0)
    s = t.client(t.proxy("--stall-timeout", "200ms", "--client-timeout", "200ms")).get(t.executor(script)).wait_done()
    check_clean(s, SMALL * 2)


@case("deadline/executor-without-credit-is-not-stalled", naive="pass")
def _(t):
    """The client grants nothing for a while; that is not the executor's fault."""
    c = t.client(t.proxy("--stall-timeout", "200ms"), window=1000, conn_window=WIDE)
    s = c.get(t.executor(reply(MEGABYTE)))
    s.auto = False
    s.wait_bytes(1000)
    c.quiet(lambda: s.done, "the stream ended", 1)
    s.auto = True
    s.grant(100_000)
    check_clean(s.wait_done(), MEGABYTE)


@case("deadline/client-that-grants-nothing")
def _(t):
    x = t.executor(reply(MEGABYTE))
    c = t.client(t.proxy("--client-timeout", "500ms"), window=1000, conn_window=WIDE)
    s = c.get(x)
    s.auto = False
    begin = time.monotonic()
    s.wait_done(within(4))
    check(s.status == 4 or s.reset or c.goaways, "got %s", s.describe())
    check(not s.clean, "a clean end of part of a result")
    x.calls[0].wait_released()
    return s.describe() + ", " + between(s, begin, 0.5, 1)


@case("deadline/client-that-reads-nothing")
def _(t):
    """Its windows are open, its socket is full: only the end of the connection is left."""
    x = t.executor(reply(MEGABYTE * 40))
    p = t.proxy("--client-timeout", "500ms")
    c = t.client(p, window=2**31 - 1, conn_window=2**31 - 1, receive_buffer=8192)
    s = c.get(x)
    s.wait_bytes(1)
    c.pause_reading()
    call = x.calls[0]
    call.wait_released(within(6))
    p.wait(lambda: p.metric("clients") == 0, "the client's connection ended")
    c.resume_reading()
    s.wait_done()
    check(not s.clean, "a clean end of part of a result")


@case("deadline/slow-client-that-moves", naive="pass")
def _(t):
    """Little at a time, but always something: never ended."""
    c = t.client(t.proxy("--client-timeout", "400ms"), window=100, conn_window=WIDE)
    s = c.get(t.executor(reply(SMALL[:1000])))
    s.auto = False
    for have in range(100, 1001, 100):
        s.wait_bytes(have)
        time.sleep(0.2)
        if have < 1000:
            s.grant(100)
    check_clean(s.wait_done(), SMALL[:1000])


@case("deadline/idle-connection")
def _(t):
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy("--idle-timeout", "400ms"))
    check_clean(c.get(x).wait_done(), SMALL)
    begin = time.monotonic()
    c.wait(lambda: c.closed, "the idle connection closed", within(3))
    check(c.goaways and c.goaways[-1][1] == wire.NO_ERROR, "GOAWAY %s", c.goaways)
    return between(c.closed_at, begin, 0.35, 0.4)


@case("deadline/idle-timeout-spares-streams", naive="pass")
def _(t):
    x = t.executor(head_then_silence)
    c = t.client(t.proxy("--idle-timeout", "200ms"))
    s = c.get(x)
    s.wait_head()
    c.quiet(lambda: c.closed or c.goaways or s.done, "a connection with a stream ended as idle", 0.8)
    x.calls[0].send(SMALL)
    x.calls[0].trailers(0)
    check_clean(s.wait_done(), SMALL)


@case("deadline/client-that-says-nothing")
def _(t):
    """No preface, half of it, no SETTINGS after it: closed after --handshake-timeout."""
    p = t.proxy("--handshake-timeout", "400ms")
    for data in (b"", wire.PREFACE[:10], wire.PREFACE, wire.PREFACE + wire.settings({})[:5]):
        begin = time.monotonic()
        with socket.create_connection(p.address) as s:
            s.settimeout(within(3))
            s.sendall(data)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        between(time.monotonic(), begin, 0.4, 0.4)


@case("deadline/request-that-does-not-end")
def _(t):
    """HEADERS, some of the message, and then nothing."""
    x = t.executor(silence)
    c = t.client(t.proxy("--handshake-timeout", "400ms"))
    begin = time.monotonic()
    s = c.request(wire.ticket(*x.address)[:9], end=False).wait_done(within(3))
    check(s.status == 4 or s.reset not in (None, wire.NO_ERROR), "got %s", s.describe())
    check(not x.calls, "the executor was asked")
    return s.describe() + ", " + between(s, begin, 0.4, 0.4)


@case("deadline/grpc-timeout")
def _(t):
    """The client's own deadline: forwarded, and kept by the proxy when the executor does not."""
    x = t.executor(silence)
    c = t.client(t.proxy())
    begin = time.monotonic()
    s = c.get(x, metadata=[("grpc-timeout", "400m")]).wait_done(within(3))
    check(s.status == 4 and s.message.startswith("flightsplice:"), "got %s", s.describe())
    check("grpc-timeout" in dict(x.calls[0].headers), "the executor was not told")
    x.calls[0].wait_released(within(0.5))
    return between(s, begin, 0.4, 0.4)


@case("deadline/grpc-timeout-mid-data")
def _(t):
    x = t.executor(reply(MEGABYTE))
    c = t.client(t.proxy(), window=10_000, conn_window=WIDE)
    begin = time.monotonic()
    s = c.get(x, metadata=[("grpc-timeout", "400m")])
    s.auto = False
    s.wait_done(within(3))
    check(s.status == 4 and len(s.data) == 10_000, "got %s", s.describe())
    x.calls[0].wait_released(within(0.5))
    return between(s, begin, 0.4, 0.4)
