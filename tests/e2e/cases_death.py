# SPDX-License-Identifier: Apache-2.0
"""
Executors that die, at every point and in every way. Completeness is sacred: the client must be told within
a second, and never by something that a client could take for the end of a complete result. What it
could: END_STREAM without grpc-status, RST_STREAM(NO_ERROR or CANCEL) (old hyper and tonic).
"""
import json
import os
import signal
import time

from peers import wire
from peers.executor import reply
from peers.harness import BUILD, SCALE, case, check, check_time, within
from peers.proxy import DATAPATH, free_port
from cases_flow import MEGABYTE, WIDE
from cases_request import SMALL, check_clean

PART = MEGABYTE[:300_000]


def fin(call):
    call.link.close()


def rst(call):
    call.link.abort()


def goaway_fin(call):
    call.link.raw(wire.goaway(call.number))
    call.link.close()


def reset_with(code):
    return lambda call: call.rst(code)


def before_head(call):
    call.wait_request()


def after_head(call):
    call.wait_request()
    call.head()


def between_messages(call):
    after_head(call)
    call.send(wire.message(PART))


def mid_message(call):
    after_head(call)
    call.send(wire.message(PART)[:-777])


def mid_frame(call):
    after_head(call)
    call.send(wire.message(PART)[:-777])
    call.wait_window(16384)
    call.raw_partial_data(16384, 5000)


def mid_frame_head(call):
    after_head(call)
    call.send(PART)
    call.link.raw(wire.frame(wire.DATA, 0, call.number, bytes(100))[:5])


def mid_trailers(call):
    after_head(call)
    call.send(PART)
    block = wire.frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, call.number, b"\x00\x0bgrpc-status\x010")
    call.link.raw(block[:-1])


POINTS = {"before-the-head": before_head, "after-the-head": after_head, "between-messages": between_messages,
          "mid-message": mid_message, "mid-frame": mid_frame, "mid-frame-head": mid_frame_head,
          "mid-trailers": mid_trailers}
WAYS = {"fin": fin, "rst": rst, "goaway-and-fin": goaway_fin}


def check_told(stream, since, what="the client"):
    """The stream has ended with an error that no client takes for success, in time."""
    check(not stream.clean, "%s saw a clean end after %d bytes", what, len(stream.data))
    by_status = stream.ended and stream.status not in (None, 0)
    by_reset = stream.reset not in (None, wire.NO_ERROR, wire.CANCEL)
    # Part of a frame may have reached the client already on a kernel datapath: then only this is left.
    by_connection = DATAPATH != "relay" and stream.client.closed == "reset"
    check(by_status or by_reset or by_connection, "%s was told: %s", what, stream.describe())
    late = stream.done_at - since
    check_time(late, within(1), what)
    return late


def death(until, die):
    def run(t):
        times = []

        def script(call):
            until(call)
            times.append(time.monotonic())
            die(call)
        x = t.executor(script)
        c = t.client(t.proxy(), window=2**20, conn_window=WIDE)
        s = c.get(x).wait_done()
        late = check_told(s, times[0] if len(times) == 1 else times[-1])
        sent = bytes(s.data)
        check(wire.message(PART).startswith(sent) or PART.startswith(sent), "bytes that the executor did not send")
        if s.status is not None:
            # A stream that was reset may be told by the code of the reset; a lost connection is UNKNOWN.
            by_reset = x.calls[0].link.closed is None and (2, 13, 14)
            check(s.status in (by_reset or (2,)), "grpc-status %d '%s'", s.status, s.message)
            check(s.message.startswith("flightsplice:"), "message '%s'", s.message)
            check("127.0.0.1" in s.message, "the message does not name the executor: '%s'", s.message)
        return f"{s.describe()}, after {late * 1000:.0f} ms"
    return run


for point, until_ in POINTS.items():
    for how, die_ in WAYS.items():
        if not (how.startswith("goaway") and point in ("mid-frame", "mid-frame-head", "mid-trailers")):
            case(f"death/{how}-{point}")(death(until_, die_))
for code_ in (wire.NO_ERROR, wire.PROTOCOL_ERROR, wire.INTERNAL_ERROR, wire.REFUSED_STREAM, wire.CANCEL,
              wire.ENHANCE_YOUR_CALM):
    case(f"death/rst-stream-{code_}-mid-message", naive="fail" if code_ in (0, 8) else "pass")(
        death(mid_message, reset_with(code_)))


@case("death/rst-stream-before-the-head")
def _(t):
    """NO_ERROR and CANCEL in place of an answer."""
    for code in (wire.NO_ERROR, wire.CANCEL, wire.INTERNAL_ERROR):
        times = []

        def script(call):
            call.wait_request()
            times.append(time.monotonic())
            call.rst(code)
        s = t.client(t.proxy()).get(t.executor(script)).wait_done()
        check_told(s, times[-1], f"with RST_STREAM({code}) the client")


@case("death/end-stream-on-data")
def _(t):
    """The executor ends the stream without trailers, inside a message and at its end."""
    for cut in (777, None):
        times = []

        def script(call):
            after_head(call)
            times.append(time.monotonic())
            call.send(wire.message(PART)[:-cut] if cut else wire.message(PART), end=True)
        s = t.client(t.proxy(), window=2**20, conn_window=WIDE).get(t.executor(script)).wait_done()
        check_told(s, times[-1])
        check(s.status in (None, 2, 13), "grpc-status %s", s.status)


@case("death/end-stream-on-empty-data")
def _(t):
    times = []

    def script(call):
        between_messages(call)
        times.append(time.monotonic())
        with call.link.cond:
            call.link.h2.send_data(call.number, b"", end_stream=True)
            call.link.flush()
    s = t.client(t.proxy(), window=2**20, conn_window=WIDE).get(t.executor(script)).wait_done()
    check_told(s, times[-1])


@case("death/end-stream-on-the-head")
def _(t):
    """A response of nothing but ':status: 200'."""
    times = []

    def script(call):
        call.wait_request()
        times.append(time.monotonic())
        call.head(end=True)
    s = t.client(t.proxy()).get(t.executor(script)).wait_done()
    check_told(s, times[-1])


@case("death/trailers-without-grpc-status")
def _(t):
    times = []

    def script(call):
        between_messages(call)
        times.append(time.monotonic())
        with call.link.cond:
            call.link.h2.send_headers(call.number, [("x-nothing", "1")], end_stream=True)
            call.link.flush()
    s = t.client(t.proxy(), window=2**20, conn_window=WIDE).get(t.executor(script)).wait_done()
    check_told(s, times[-1])


@case("death/protocol-errors-of-the-executor")
def _(t):
    """DATA before HEADERS, DATA beyond the window, a broken header block, a frame too large."""
    def data_first(call):
        call.wait_request()
        call.link.raw(wire.frame(wire.DATA, 0, call.number, b"early"))

    def over_window(call):
        after_head(call)
        for _ in range(600):
            call.link.raw(wire.frame(wire.DATA, 0, call.number, bytes(16384)))

    def bad_block(call):
        call.wait_request()
        call.link.raw(wire.frame(wire.HEADERS, wire.END_HEADERS, call.number, b"\xff\xff\xff\xff\xff"))

    def too_large(call):
        after_head(call)
        call.link.raw(wire.frame(wire.DATA, 0, call.number, bytes(16385)))

    def bad_push(call):
        after_head(call)
        call.link.raw(wire.frame(wire.PUSH, wire.END_HEADERS, call.number, b"\0\0\0\2\x82\x86"))

    p = t.proxy()
    for script in (data_first, over_window, bad_block, too_large, bad_push):
        x = t.executor(script)
        c = t.client(p, window=65535, conn_window=WIDE)
        s = c.get(x)
        s.auto = False
        s.wait_done()
        check_told(s, s.done_at, script.__name__)
        check(len(s.data) <= 65535, "%s: %d bytes over a window of 65535", script.__name__, len(s.data))
        good = t.executor(reply(SMALL))
        check_clean(c.get(good).wait_done(), SMALL)
    t.tolerate_violations = True  # the executors' own


@case("death/others-are-unharmed")
def _(t):
    """One of three executors of a client dies: its streams fail, the others' go on."""
    def dying(call):
        mid_message(call)
        if call.index == 2:
            for k in list(call.link.executor.links):
                k.abort()
    x, y = t.executor(dying), t.executor(reply(MEGABYTE))
    c = t.client(t.proxy(), window=2**19, conn_window=WIDE)
    good = [c.get(y) for _ in range(2)]
    for s in good:
        s.auto = False
    bad = [c.get(x) for _ in range(3)]
    for s in bad:
        check_told(s.wait_done(), s.done_at)
    for s in good:
        s.auto = True
        s.grant(2**20)
        check_clean(s.wait_done(), MEGABYTE)
    check_clean(c.get(y).wait_done(), MEGABYTE)


@case("death/complete-before-the-end")
def _(t):
    """Everything and FIN or RST in one go: a complete response is delivered in full all the same."""
    for die in (fin, goaway_fin):
        def script(call):
            after_head(call)
            call.wait_window(len(PART))
            call.link.raw(b"".join(wire.frame(wire.DATA, 0, call.number, PART[i:i + 16384])
                                   for i in range(0, len(PART), 16384))
                          + wire.frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, call.number,
                                       b"\x00\x0bgrpc-status\x010"))
            die(call)
        c = t.client(t.proxy(), window=2**20, conn_window=WIDE, receive_buffer=8192)
        c.pause_reading()
        s = c.get(t.executor(script))
        time.sleep(0.2)  # all of it is on its way before the client reads
        c.resume_reading()
        check_clean(s.wait_done(), PART)


@case("death/kill-9-of-a-process", limit=120)
def _(t):
    """A real process killed by the kernel under load: every stream of it fails, none ends cleanly."""
    address = f"127.0.0.1:{free_port()}"
    x = t.process([os.path.join(BUILD, "e2e", "loadgen"), "exec", "-l", address], stdout=-1)
    x.stdout.readline()
    p = t.proxy()
    to = f"{p.address[0]}:{p.address[1]}"
    size = int(20e9 * max(SCALE, 0.2))
    fetch = t.process([os.path.join(BUILD, "e2e", "loadgen"), "fetch", "-c", to, "-e", address, "-b", str(size), "-n",
                       "8", "-m", "4", "-j", "2", "-w", "1000000", "-W", "8000000", "-t", "60"], stdout=-1, text=True)
    p.wait(lambda: p.metric("client_data_bytes") > 50e6, "50 MB delivered", 30)
    x.send_signal(signal.SIGKILL)
    begin = time.monotonic()
    out, _ = fetch.communicate(timeout=30)
    result = json.loads(out)
    check(result["ok"] == 0 and result["failed"] == 8, "result %s", result)
    check_time(time.monotonic() - begin, within(1), "telling all clients")
    if DATAPATH == "relay":
        check("grpc-status 2" in result["error"], "the clients were told: %s", result["error"])
    return result["error"]
