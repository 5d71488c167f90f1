# SPDX-License-Identifier: Apache-2.0
"""A client that gives up, in every way and at every point: the executor is released within 100 ms, the
proxy keeps nothing, and other streams go on."""
import random
import time

import h2.exceptions

from peers import wire
from peers.client import Client
from peers.executor import reply
from peers.harness import case, check, check_time, within
from peers.proxy import NAIVE
from cases_flow import MEGABYTE, WIDE, stream_until_reset
from cases_request import SMALL, check_clean

BOUND = 0.1
TRIES = 5  # the machine may be busy


def never_answer(call):
    call.wait_request()


def head_only(call):
    call.wait_request()
    call.head()


# name: (executor's script, client's stream window, the point has been reached)
POINTS = {
    "before-the-head": (never_answer, 65535, lambda s: True),
    "after-the-head": (head_only, 65535, lambda s: s.headers),
    "mid-data": (stream_until_reset, 2**20, lambda s: len(s.data) > 2_000_000),
    "blocked-on-the-window": (stream_until_reset, 1000, lambda s: len(s.data) == 1000),
}
WAYS = {
    "reset": lambda c, s: s.rst(),
    "disconnect": lambda c, s: c.close(),
    "abort": lambda c, s: c.abort(),
    "goaway-and-close": lambda c, s: (c.raw(wire.goaway(0)), c.close()),
}


def cancel(script, window, reached, way):
    def run(t):
        x, p = t.executor(script), t.proxy()
        times = []
        for _ in range(TRIES):
            c = Client(p.address, window=window, conn_window=WIDE)
            t.clients.append(c)
            s = c.get(x)
            s.auto = window > 1000
            call = x.wait_call(len(times))
            call.wait_request()
            c.wait(lambda: reached(s), "the point of cancellation")
            begin = time.monotonic()
            way(c, s)
            times.append(call.wait_released(2) - begin)
            if not NAIVE:
                p.wait(lambda: p.metric("streams") == 0, "no stream open")
            c.close()
            if times[-1] <= within(BOUND):
                return f"released after {times[-1] * 1000:.1f} ms"
        check_time(min(times), within(BOUND), f"releasing the executor, at best of {TRIES}:")
    return run


for point, (script_, window_, reached_) in POINTS.items():
    for how, way_ in WAYS.items():
        case(f"cancel/{how}-{point}", naive="pass")(cancel(script_, window_, reached_, way_))


@case("cancel/sibling-goes-on", naive="pass")
def _(t):
    def script(call):
        stream_until_reset(call) if ("x-endless", "1") in call.headers else reply(MEGABYTE)(call)
    x = t.executor(script)
    c = t.client(t.proxy(), window=65535, conn_window=WIDE)
    kept = c.get(x)
    kept.auto = False
    kept.wait_bytes(65535)
    for _ in range(50):
        s = c.get(x, metadata=[("x-endless", "1")])
        s.wait_bytes(50_000)
        s.rst()
    kept.auto = True
    kept.grant(65535)
    check_clean(kept.wait_done(20), MEGABYTE)


@case("cancel/while-the-executor-is-silent")
def _(t):
    """Nothing has been answered, not even SETTINGS: the connection to it is not kept for nobody."""
    x = t.executor(never_answer, speaks=False)
    p = t.proxy()
    c = t.client(p)
    s = c.get(x)
    link = x.wait_link()
    s.rst()
    p.wait(lambda: p.metric("streams") == 0, "no stream open")
    c.close()
    link.wait(lambda: link.closed, "the connection to the executor closed")
    t.tolerate_violations = True  # an executor that does not speak does not understand either


@case("cancel/request-never-ends")
def _(t):
    """A client that goes away in the middle of its request."""
    p = t.proxy()
    x = t.executor(never_answer)
    for cut in (0, 3, 9, 20):
        c = Client(p.address)
        c.request(wire.ticket(*x.address)[:cut], end=False)
        c.ping(b"sync 123")
        c.wait(lambda: c.pongs, "PING answered")
        c.close()
    p.wait(lambda: p.metric("clients") == 0, "no client left")
    check(not x.calls, "an executor was asked with half a ticket")


@case("cancel/random", naive="pass", limit=90)
def _(t):
    """400 streams on 4 connections, most of them reset at a random point; the rest is right."""
    rnd = random.Random(4)
    x = t.executor(reply(MEGABYTE[:200_000]))
    p = t.proxy()
    for _ in range(4):
        c = t.client(p, window=30_000, conn_window=WIDE)
        live = []
        for _ in range(100):
            live.append(c.get(x))
            for s in list(live):
                if s.done:
                    check_clean(s, MEGABYTE[:200_000])
                    live.remove(s)
                elif rnd.random() < 0.5:
                    code = rnd.choice((wire.CANCEL, wire.NO_ERROR, wire.INTERNAL_ERROR))
                    try:
                        s.rst(code)
                    except h2.exceptions.StreamClosedError:  # it ended since we looked
                        check_clean(s.wait_done(20), MEGABYTE[:200_000])
                    live.remove(s)
        for s in live:
            check_clean(s.wait_done(20), MEGABYTE[:200_000])
    check_clean(t.client(p).get(x).wait_done(), MEGABYTE[:200_000])


@case("cancel/answer-crosses-the-reset", naive="pass")
def _(t):
    """RST_STREAM for a stream that has just ended is no error."""
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    for _ in range(20):
        s = c.get(x).wait_done()
        check_clean(s, SMALL)
        c.raw(wire.rst_stream(s.number, wire.CANCEL) + wire.window_update(s.number, 100))
    check_clean(c.get(x).wait_done(), SMALL)
