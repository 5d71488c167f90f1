# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: GOAWAY twice, streams in flight finish, exit status 0; a second one ends at once."""
import signal
import time

from peers import wire
from peers.executor import reply
from peers.harness import case, check, check_time, within
from peers.proxy import NAIVE
from cases_flow import MEGABYTE, WIDE
from cases_request import SMALL, check_clean


def in_flight(t, proxy):
    """A stream that waits for its client."""
    c = t.client(proxy, window=1000, conn_window=WIDE)
    s = c.get(t.executor(reply(MEGABYTE)))
    s.auto = False
    s.wait_bytes(1000)
    return c, s


def finish(s):
    s.auto = True
    s.grant(2**20)
    check_clean(s.wait_done(), MEGABYTE)


@case("drain/streams-in-flight-finish")
def _(t):
    p = t.proxy()
    c, s = in_flight(t, p)
    idle = t.client(p)
    idle.wait(lambda: idle.frames, "SETTINGS")
    p.signal(signal.SIGTERM)
    c.wait(lambda: len(c.goaways) >= 2, "GOAWAY twice")
    check([g[:2] for g in c.goaways] == [(wire.STREAM_MAX, 0), (s.number, 0)], "GOAWAYs were %s", c.goaways)
    idle.wait(lambda: idle.closed, "the idle client's connection closed")
    check(idle.goaways and idle.goaways[-1][:2] == (0, 0), "the idle client: GOAWAY %s", idle.goaways)
    check(p.running(), "the proxy ended with a stream in flight")
    c.quiet(lambda: s.done, "the stream ended by itself", 0.3)
    finish(s)
    c.wait(lambda: c.closed, "connection closed after the last stream")
    status = p.wait_exit(within(2))
    check(status == 0, "exit status %s", status)


@case("drain/streams-opened-before-the-second-goaway")
def _(t):
    """What the second GOAWAY covers is served; what it does not, the client may send elsewhere."""
    p = t.proxy()
    c, s = in_flight(t, p)
    x = t.executor(reply(SMALL))
    p.signal(signal.SIGTERM)
    extra = []
    while len(c.goaways) < 2 and len(extra) < 500:
        extra.append(c.get(x))
        time.sleep(0.001)
    c.wait(lambda: len(c.goaways) >= 2, "GOAWAY twice")
    last = c.goaways[1][0]
    late = c.get(x)
    for e in extra:
        if e.number <= last:
            check_clean(e.wait_done(), SMALL)
    check(not late.clean, "a stream above the last id was answered")
    finish(s)
    check(p.wait_exit(within(2)) == 0, "exit status %s", p.process.returncode)
    return f"{sum(e.number <= last for e in extra)} of {len(extra)} more streams served"


@case("drain/idle-ends-at-once")
def _(t):
    p = t.proxy()
    check_clean(t.client(p).get(t.executor(reply(SMALL))).wait_done(), SMALL)
    p.signal(signal.SIGTERM)
    check(p.wait_exit(within(2)) == 0, "exit status %s", p.process.returncode)
    check(not NAIVE, "no GOAWAY")
    c = t.clients[0]
    check(c.goaways, "no GOAWAY")


@case("drain/readiness")
def _(t):
    """/readyz says 503 while draining, /healthz goes on saying 200."""
    p = t.proxy()
    c, s = in_flight(t, p)
    check(p.get("/readyz")[0] == 200 and p.get("/healthz")[0] == 200, "not ready before")
    p.signal(signal.SIGTERM)
    c.wait(lambda: c.goaways, "GOAWAY")
    p.wait(lambda: p.get("/readyz")[0] == 503, "/readyz is 503")
    check(p.get("/healthz")[0] == 200, "/healthz is %s", p.get("/healthz"))
    finish(s)
    check(p.wait_exit(within(2)) == 0, "exit status %s", p.process.returncode)


@case("drain/second-signal")
def _(t):
    """Ends at once; the streams cut off do not look complete."""
    p = t.proxy()
    c, s = in_flight(t, p)
    p.signal(signal.SIGTERM)
    c.wait(lambda: len(c.goaways) >= 2, "GOAWAY twice")
    begin = time.monotonic()
    p.signal(signal.SIGTERM)
    status = p.wait_exit(within(1.5))
    s.wait_done()
    check(not s.clean and not (s.ended and s.status is None), "the client saw %s", s.describe())
    check(s.reset not in (wire.NO_ERROR, wire.CANCEL), "the client saw %s", s.describe())
    check(status in (0, 1), "exit status %s", status)
    p.expect_exit = status
    t.executors[0].calls[0].wait_released(within(1))
    return f"{time.monotonic() - begin:.2f} s, client: {s.describe()}, exit status {status}"


@case("drain/timeout")
def _(t):
    """--drain-timeout is the end for streams that do not finish."""
    p = t.proxy("--drain-timeout", "600ms")
    c, s = in_flight(t, p)
    begin = time.monotonic()
    p.signal(signal.SIGTERM)
    s.wait_done(within(4))
    check(0.55 < s.done_at - begin, "cut off after %.2f s", s.done_at - begin)
    check_time(s.done_at - begin, 0.6 + within(1), "cutting off")
    check(not s.clean and s.reset not in (wire.NO_ERROR, wire.CANCEL), "the client saw %s", s.describe())
    check(not (s.ended and s.status in (None, 0)), "the client saw %s", s.describe())
    status = p.wait_exit(within(2))
    check(status in (0, 1), "exit status %s", status)
    p.expect_exit = status
    return f"{s.describe()}, exit status {status}"


@case("drain/sighup-is-not-the-end")
def _(t):
    p = t.proxy()
    c, s = in_flight(t, p)
    p.signal(signal.SIGHUP)
    x = t.executor(reply(SMALL))
    for _ in range(5):
        check_clean(t.client(p).get(x).wait_done(), SMALL)
    check(p.running(), "SIGHUP ended it")
    finish(s)


@case("drain/sigint")
def _(t):
    """Ctrl-C is SIGTERM."""
    p = t.proxy()
    c, s = in_flight(t, p)
    p.signal(signal.SIGINT)
    c.wait(lambda: len(c.goaways) >= 2, "GOAWAY twice")
    finish(s)
    check(p.wait_exit(within(2)) == 0, "exit status %s", p.process.returncode)
