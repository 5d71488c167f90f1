# SPDX-License-Identifier: Apache-2.0
"""PING, SETTINGS, GOAWAY, limits on concurrency, and frames nobody knows: each ends at the hop it arrives on."""
import time

from peers import wire
from peers.executor import reply
from peers.harness import case, check, check_time, within
from cases_flow import MEGABYTE, QUIET, WIDE
from cases_request import SMALL, check_clean


def head_then_wait(call):
    """Answers the head and then nothing until the case goes on with `call.go`."""
    call.wait_request()
    call.head()


@case("control/ping-while-data-flows", naive="pass")
def _(t):
    """Answered while the stream is running, each within a second."""
    data = MEGABYTE * 60
    c = t.client(t.proxy(), window=2 * 2**20, conn_window=5 * 2**20)
    s = c.get(t.executor(reply(data)))
    worst = answered = 0
    while not s.done and answered < 200:
        payload = b"%8d" % answered
        sent = time.monotonic()
        c.ping(payload)
        c.wait(lambda: payload in c.pongs, "PING answered")
        worst = max(worst, c.pongs[payload] - sent)
        answered += 1
    check(answered > 3, "only %d PINGs answered before the end of 60 MB", answered)
    check_time(worst, within(1), "a PING")
    check_clean(s.wait_done(30), data)
    return f"{answered} PINGs, slowest {worst * 1000:.1f} ms"


@case("control/ping-while-a-stream-is-blocked")
def _(t):
    """Nobody can send, nobody is asked: the answer comes from the proxy, which does not pass it on."""
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy(), window=0)
    s = c.get(x)
    s.wait_head()
    for i in range(20):
        c.ping(b"client%2d" % i)
    c.wait(lambda: len(c.pongs) == 20, "20 PINGs answered")
    s.grant(len(SMALL))
    check_clean(s.wait_done(), SMALL)
    forwarded = [f for f in x.links[0].frames if f.kind == wire.PING and f.payload.startswith(b"client")]
    check(not forwarded, "the client's PINGs reached the executor")


@case("control/ping-of-the-executor")
def _(t):
    x = t.executor(head_then_wait)
    c = t.client(t.proxy())
    s = c.get(x)
    s.wait_head()
    link = x.links[0]
    for i in range(20):
        link.ping(b"execut%2d" % i)
    link.wait(lambda: len([p for p in link.pongs if p.startswith(b"execut")]) == 20, "the executor's PINGs answered")
    x.calls[0].send(SMALL)
    x.calls[0].trailers(0)
    check_clean(s.wait_done(), SMALL)
    check(not [f for f in c.frames if f.kind == wire.PING and f.payload.startswith(b"execut")],
          "the executor's PINGs reached the client")


@case("control/settings-of-the-client-mid-stream")
def _(t):
    """Each is acknowledged; none reaches the executor; the stream goes on."""
    data = MEGABYTE * 20
    x = t.executor(reply(data))
    c = t.client(t.proxy(), window=2**20, conn_window=WIDE)
    s = c.get(x)
    for i, values in enumerate([{wire.HEADER_TABLE_SIZE: 0}, {wire.MAX_FRAME_SIZE: 32768}, {wire.HEADER_TABLE_SIZE: 100},
                                {wire.MAX_HEADER_LIST_SIZE: 9999}, {wire.HEADER_TABLE_SIZE: 4096}, {0x77: 5}]):
        s.wait_bytes((i + 1) * 500_000, 20)
        c.change_settings(values)
    check_clean(s.wait_done(30), data)
    check_clean(c.get(x).wait_done(30), data)
    got = [f for f in x.links[0].frames if f.kind == wire.SETTINGS and not f.flags & wire.ACK]
    check(not any(b"\x00\x77\x00\x00\x00\x05" in f.payload for f in got), "the client's SETTINGS reached the executor")


@case("control/settings-of-the-executor-mid-stream")
def _(t):
    x = t.executor(head_then_wait)
    c = t.client(t.proxy())
    s = c.get(x)
    s.wait_head()
    seen = sum(f.kind == wire.SETTINGS for f in c.frames)
    link = x.links[0]
    with link.cond:
        for i in range(5):
            link.h2.update_settings({wire.MAX_HEADER_LIST_SIZE: 20000 + i})
        link.flush()
    link.wait(lambda: sum(f.kind == wire.SETTINGS and f.flags & wire.ACK for f in link.frames) >= 6,
              "the executor's SETTINGS acknowledged")
    x.calls[0].send(SMALL)
    x.calls[0].trailers(0)
    check_clean(s.wait_done(), SMALL)
    check(sum(f.kind == wire.SETTINGS for f in c.frames) == seen, "the executor's SETTINGS reached the client")


@case("control/frames-nobody-knows")
def _(t):
    """Unknown types, PRIORITY on any stream and unknown flags are ignored, from both sides."""
    x = t.executor(head_then_wait)
    c = t.client(t.proxy())
    s = c.get(x)
    s.wait_head()
    odd = b"".join(wire.frame(0xfa, 0xff, n, b"whatever") + wire.frame(wire.PRIORITY, 0, n or 5, bytes(4) + b"\x10")
                   for n in (0, s.number, 77))
    c.raw(odd + wire.frame(0x10, 0, 0, b"\0\0\0\1u=1"))
    x.links[0].raw(odd + wire.frame(0x0a, 0, 0, b"\0\1ah2"))
    x.calls[0].send(SMALL)
    x.calls[0].trailers(0)
    check_clean(s.wait_done(), SMALL)
    check(all(f.kind <= wire.CONTINUATION and f.kind != wire.PRIORITY for f in c.frames),
          "frames to the client: %s", c.frames)


@case("control/peers-that-send-byte-by-byte", naive="pass")
def _(t):
    """Every boundary of segments inside the first frames of both sides."""
    def dribble(link):
        whole = link.sock.sendall
        class Socket:
            def __getattr__(self, name):
                return getattr(link._real, name)
            def sendall(self, data):
                for i in range(len(data)):
                    whole(data[i:i + 1])
        link._real, link.sock = link.sock, Socket()

    def script(call):
        call.wait_request()
        dribble(call.link)
        call.head()
        call.send(SMALL)
        call.trailers(0)
    x = t.executor(script)
    c = t.client(t.proxy(), start=False)
    dribble(c)
    c.h2.initiate_connection()
    s = c.request(wire.ticket(*x.address))
    c.thread.start()
    check_clean(s.wait_done(20), SMALL)


@case("goaway/graceful-of-an-executor")
def _(t):
    """
    GOAWAY(2^31-1), PING, GOAWAY(last): the stream in flight finishes, the next one goes elsewhere,
    and the client sees none of it.
    """
    x = t.executor(head_then_wait)
    c = t.client(t.proxy())
    first = c.get(x)
    first.wait_head()
    link = x.links[0]
    link.raw(wire.goaway(wire.STREAM_MAX) + wire.frame(wire.PING, 0, 0, b"draining"))
    link.wait(lambda: b"draining" in link.pongs, "PING answered")
    link.raw(wire.goaway(first.number))
    second = c.get(x)
    call = x.wait_call(1)
    check(call.link is not link, "the second stream went to the connection that said GOAWAY")
    for k, s in ((x.calls[0], first), (call, second)):
        k.wait_request()
        s.wait_head()
        k.send(SMALL)
        k.trailers(0)
        check_clean(s.wait_done(), SMALL)
    check(not c.goaways, "GOAWAY reached the client: %s", c.goaways)


@case("goaway/stream-above-the-last")
def _(t):
    """Requests that the executor says it has not seen are tried again or refused, within a second."""
    def script(call):
        call.wait_request()
        if call.link is call.link.executor.links[0]:
            call.link.raw(wire.goaway(0) if call.number == 1 else wire.goaway(1))
            return
        reply(SMALL)(call)
    x = t.executor(script)
    c = t.client(t.proxy())
    s = c.get(x).wait_done(within(1))
    if s.clean:
        check_clean(s, SMALL)
        return "tried again"
    check(s.status in (2, 14) or s.reset == wire.REFUSED_STREAM, "got %s", s.describe())
    return s.describe()


@case("goaway/with-an-error")
def _(t):
    def script(call):
        call.wait_request()
        call.head()
        call.send(SMALL)
        call.link.raw(wire.goaway(call.number, wire.INTERNAL_ERROR, b"sorry"))
        call.link.finish()
    c = t.client(t.proxy())
    s = c.get(t.executor(script)).wait_done(within(1))
    check(s.status not in (None, 0) or s.reset not in (None, wire.NO_ERROR, wire.CANCEL), "got %s", s.describe())
    check(not c.goaways, "GOAWAY reached the client: %s", c.goaways)


def concurrency(t, x, count, after=None):
    c = t.client(t.proxy(), window=2**20, conn_window=WIDE)
    streams = [c.get(x) for _ in range(count)]
    if after:
        after()
    for s in streams:
        check_clean(s.wait_done(10), SMALL)


@case("limits/executor-with-few-streams")
def _(t):
    """MAX_CONCURRENT_STREAMS 3 and 50 streams of one client: all finish, and never are there more than 3."""
    x = t.executor(reply(SMALL), settings={wire.MAX_CONCURRENT_STREAMS: 3})
    concurrency(t, x, 50)
    check(len(x.calls) == 50, "the executor got %d requests", len(x.calls))


@case("limits/executor-that-lowers-its-limit")
def _(t):
    """From 20 to 1 while streams are running."""
    def script(call):
        if call.index == 5:
            with call.link.cond:
                call.link.h2.update_settings({wire.MAX_CONCURRENT_STREAMS: 1})
                call.link.flush()
        reply(SMALL)(call)
    concurrency(t, t.executor(script, settings={wire.MAX_CONCURRENT_STREAMS: 20}), 40)


@case("limits/executor-with-late-settings")
def _(t):
    """50 streams wait for an executor that says only after a while that it takes 3 at a time."""
    x = t.executor(reply(SMALL), settings={wire.MAX_CONCURRENT_STREAMS: 3}, speaks=False)

    def after():
        x.wait_link()
        time.sleep(QUIET)  # whoever sends requests before SETTINGS does so in this time
        with x.cond:
            x.speaks = True
            for link in x.links:
                check(not link.violation, "before the executor's SETTINGS: %s", link.violation)
                link.start()
    concurrency(t, x, 50, after)
