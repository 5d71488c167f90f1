# SPDX-License-Identifier: Apache-2.0
"""Requests in every legal shape reach the executor as one request with the same bytes, and answers
come back as they were sent."""
import random

from peers import wire
from peers.executor import reply
from peers.harness import case, check
from peers.wire import Frame

SMALL = random.Random(1).randbytes(3000)


def check_clean(stream, payload):
    check(stream.clean, "no clean end: %s", stream.describe())
    check(bytes(stream.data) == payload, "payload differs: %d bytes, sent %d", len(stream.data), len(payload))


@case("request/one-small-result", naive="pass")
def _(t):
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    s = c.get(x).wait_done()
    check_clean(s, SMALL)
    check(x.calls[0].wait_request() == wire.ticket(*x.address), "the ticket's bytes changed")


@case("request/verbatim-answer", naive="pass")
def _(t):
    """Metadata of the head, the trailers and the frames' shape are the executor's."""
    head = [("x-head", "a b"), ("blob-bin", "AAEC")]
    tail = [("grpc-message", "100%25 fine"), ("x-tail", "z" * 300)]

    def script(call):
        call.wait_request()
        call.head(extra=head)
        call.send(SMALL, frame_size=1000)
        call.send(b"", frame_size=1000)
        call.trailers(0, extra=tail)
    x = t.executor(script)
    s = t.client(t.proxy()).get(x).wait_done()
    check_clean(s, SMALL)
    check([p for p in s.headers if p in head] == head, "head was %s", s.headers)
    check(s.trailers == [("grpc-status", "0")] + tail, "trailers were %s", s.trailers)
    check([len(f.payload) for f in s.frames if f.kind == wire.DATA] == [1000] * 3, "frames were %s", s.frames)


@case("request/ticket-with-unknown-fields")
def _(t):
    """Of every version, reordered, with fields nobody knows: forwarded byte by byte."""
    x = t.executor(reply(SMALL))
    host, port = x.address
    tickets = [
        wire.action(host, port, extra=wire.number(7, 0) + wire.number(9, 2) + wire.chunk(11, b"\x08\x01\x10\x02")),
        wire.chunk(3, wire.number(6, port) + wire.chunk(77, b"new") + wire.chunk(5, host) + wire.chunk(1, "j")),
        wire.chunk(100, wire.chunk(1, "key") + wire.chunk(2, "value")) + wire.action(host, port, settings_=wire.chunk(
            100, wire.chunk(1, "k2") + wire.chunk(2, "v2"))),
        wire.action(host, port, extra=wire.chunk(4, "/a/path/of/old/versions") + wire.number(8, 1)),
    ]
    p = t.proxy()
    for number, action in enumerate(tickets):
        c = t.client(p)
        body = wire.message(wire.chunk(1, action) + wire.chunk(50, b"ticket's own extra"))
        check_clean(c.request(body).wait_done(), SMALL)
        check(x.wait_call(number).wait_request() == body, "ticket %d arrived as %s", number, x.calls[number].body)


def one_byte_frames(frames):
    """DATA cut into frames of one byte, with empty ones between; END_STREAM late, on an empty frame."""
    for f in frames:
        if f.kind != wire.DATA or not f.payload:
            yield f
            continue
        for i in range(len(f.payload)):
            yield Frame(wire.DATA, 0, f.stream, f.payload[i:i + 1])
            if i % 10 == 0:
                yield Frame(wire.DATA, 0, f.stream, b"")


@case("request/ticket-in-many-frames")
def _(t):
    """Executors may limit tiny frames; they get the message, and not in so many."""
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    s = c.get(x, reshape=lambda f: list(one_byte_frames(f))).wait_done()
    check_clean(s, SMALL)
    check(x.calls[0].wait_request() == wire.ticket(*x.address), "the ticket's bytes changed")
    data = [f for f in x.links[0].frames if f.kind == wire.DATA]
    check(len(data) <= 3, "the executor got the ticket in %d DATA frames", len(data))


@case("request/ticket-in-pieces-over-time")
def _(t):
    """The request is spread over the connection's life; the end comes after everything else."""
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    body = wire.ticket(*x.address)
    s = c.request(b"", end=False)
    for piece in (body[:3], body[3:7], body[7:20], body[20:]):
        s.send(piece)
        c.ping(b"%-8d" % len(piece))
        if piece != body[20:]:
            c.wait(lambda: b"%-8d" % len(piece) in c.pongs or x.links, "PING answered")
    s.send(b"", end=True)
    check_clean(s.wait_done(), SMALL)
    check(x.calls[0].wait_request() == body, "the ticket's bytes changed")


@case("request/end-stream-with-message", naive="pass")
def _(t):
    """END_STREAM on the DATA frame that carries the message."""
    x = t.executor(reply(SMALL))
    s = t.client(t.proxy()).request(b"", end=False)
    s.send(wire.ticket(*x.address), end=True)
    check_clean(s.wait_done(), SMALL)


@case("request/padding-priority-continuation", naive="pass")
def _(t):
    """HEADERS padded, with priority and cut into CONTINUATION frames of 16 bytes; DATA padded."""
    def reshape(frames):
        for f in frames:
            if f.kind == wire.HEADERS:
                block = f.payload
                head = b"\x09" + b"\x00\x00\x00\x00\x10" + block[:5] + bytes(9)
                yield Frame(wire.HEADERS, wire.PADDED | wire.PRIORITY_FLAG | f.flags & wire.END_STREAM, f.stream, head)
                for i in range(5, len(block), 16):
                    last = wire.END_HEADERS if i + 16 >= len(block) else 0
                    yield Frame(wire.CONTINUATION, last, f.stream, block[i:i + 16])
            elif f.kind == wire.DATA and f.payload:
                yield Frame(wire.DATA, f.flags | wire.PADDED, f.stream, b"\xff" + f.payload + bytes(255))
            else:
                yield f
    x = t.executor(reply(SMALL))
    s = t.client(t.proxy()).get(x, reshape=lambda f: list(reshape(f))).wait_done()
    check_clean(s, SMALL)


@case("request/dynamic-table", naive="pass")
def _(t):
    """The second and third request on a connection refer to what the first put in the table."""
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    for number in range(3):
        s = c.get(x, metadata=[("x-tenant", "blue"), ("authorization", "Bearer abc")]).wait_done()
        check_clean(s, SMALL)
        head = dict(x.wait_call(number).headers)
        check(head.get("x-tenant") == "blue" and head.get("authorization") == "Bearer abc", "head was %s", head)
        check(head.get(":path", "").endswith("/DoGet") and head.get("te") == "trailers", "head was %s", head)


@case("request/metadata", naive="pass")
def _(t):
    """The client's metadata reaches the executor, repeated names in order."""
    extra = [("x-a", "1"), ("x-a", "2"), ("trace-bin", "AAEC"), ("x-long", "v" * 2000), ("grpc-timeout", "60S")]
    x = t.executor(reply(SMALL))
    s = t.client(t.proxy()).get(x, metadata=extra).wait_done()
    check_clean(s, SMALL)
    got = [p for p in x.calls[0].headers if p[0] in dict(extra)]
    without = [p for p in got if p[0] != "grpc-timeout"]
    check(without == extra[:-1], "metadata arrived as %s", got)
    check("grpc-timeout" in dict(got), "grpc-timeout did not arrive")


@case("request/trailers-before-request-end", naive="pass")
def _(t):
    """The executor may answer before the request has ended (with a status), then RST_STREAM(NO_ERROR)."""
    def script(call):
        call.link.wait(lambda: len(call.body) >= 10 or call.complete, "some of the request")
        call.trailers_only([("grpc-status", "5"), ("grpc-message", "no such partition")])
        if not call.complete:
            call.rst(wire.NO_ERROR)
    x = t.executor(script)
    c = t.client(t.proxy())
    s = c.request(wire.ticket(*x.address), end=False)
    # A proxy may wait for the end of the request, so it comes, unless the answer came first.
    c.cond.acquire()
    try:
        if not c.cond.wait_for(lambda: s.done, 0.3):
            s.send(b"", end=True)
    finally:
        c.cond.release()
    s.wait_done()
    check(s.status == 5 and s.message == "no such partition", "got %s", s.describe())
    check(not s.data and s.reset in (None, wire.NO_ERROR), "got %s", s.describe())


@case("request/two-executors-on-one-connection")
def _(t):
    """Each ticket goes where it says; ids of every order."""
    payloads = [random.Random(i).randbytes(100_000) for i in range(3)]
    xs = [t.executor(reply(p)) for p in payloads]
    c = t.client(t.proxy(), window=2**20, conn_window=2**24)
    order = [0, 1, 2, 2, 1, 0, 0, 2, 1]
    streams = [(i, c.get(xs[i])) for i in order]
    for i, s in streams:
        check_clean(s.wait_done(), payloads[i])
    check([len(x.calls) for x in xs] == [3, 3, 3], "requests per executor: %s", [len(x.calls) for x in xs])


@case("request/many-on-one-connection", naive="pass")
def _(t):
    """One after another, the connection stays."""
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    for _ in range(200):
        check_clean(c.get(x).wait_done(), SMALL)
        c.frames.clear()


@case("request/empty-data-in-the-answer", naive="pass")
def _(t):
    """Zero-length DATA is legal, however much there is between the rest."""
    def script(call):
        call.wait_request()
        call.head()
        for i in range(0, 300, 10):
            for _ in range(3):
                call.link.raw(wire.frame(wire.DATA, 0, call.number))
            call.send(SMALL[i:i + 10])
        call.trailers(0)
    x = t.executor(script)
    s = t.client(t.proxy()).get(x).wait_done()
    check_clean(s, SMALL[:300])


@case("request/padded-answer", naive="pass")
def _(t):
    """Padding counts against windows and is accounted; the payload is the same."""
    payload = SMALL * 100

    def script(call):
        call.wait_request()
        call.head()
        call.send(payload, frame_size=700, pad=200)
        call.trailers(0)
    x = t.executor(script)
    s = t.client(t.proxy()).get(x).wait_done()
    check_clean(s, payload)


@case("request/answer-in-continuation", naive="pass")
def _(t):
    """Response blocks of several frames arrive as one block and nothing in between."""
    def cut(frames):
        for f in frames:
            if f.kind == wire.HEADERS and len(f.payload) > 8:
                yield Frame(wire.HEADERS, f.flags & wire.END_STREAM, f.stream, f.payload[:4])
                for i in range(4, len(f.payload), 100):
                    last = wire.END_HEADERS if i + 100 >= len(f.payload) else 0
                    yield Frame(wire.CONTINUATION, last, f.stream, f.payload[i:i + 100])
            else:
                yield f

    def script(call):
        call.wait_request()
        with call.link.cond:
            call.link.h2.send_headers(call.number, [(":status", "200"), ("content-type", "application/grpc"),
                                                    ("x-big", "b" * 3000)])
            call.link.flush(lambda f: list(cut(f)))
        call.send(SMALL)
        with call.link.cond:
            call.link.h2.send_headers(call.number, [("grpc-status", "0"), ("x-big", "t" * 3000)], end_stream=True)
            call.link.flush(lambda f: list(cut(f)))
    x = t.executor(script)
    c = t.client(t.proxy())
    a, b = c.get(x), c.get(x)
    for s in (a.wait_done(), b.wait_done()):
        check_clean(s, SMALL)
        check(dict(s.trailers)["x-big"] == "t" * 3000, "trailers were cut")


@case("request/executor-that-indexes")
def _(t):
    """
    Two executors whose encoders keep a dynamic table although they were told to have none. Their
    blocks refer to tables that the client does not have: each answer is decoded right or its stream
    fails, and the client's own table stays right for everybody else.
    """
    def stubborn(value):
        def script(call):
            call.wait_request()
            pair = [("x-from", value), ("x-shared-name", value * 3)]
            with call.link.cond:
                call.link.h2.encoder.header_table_size = 4096
                call.link.h2.encoder.table_size_changes.clear()
                call.head(extra=pair)
            call.send(SMALL)
            call.trailers(0, extra=pair)
        return script
    x, y, good = t.executor(stubborn("red")), t.executor(stubborn("blue")), t.executor(reply(SMALL))
    c = t.client(t.proxy())
    clean = 0
    for turn in range(9):
        executor, value = ((x, "red"), (y, "blue"), (good, None))[turn % 3]
        s = c.get(executor).wait_done()
        check(not c.violation and not c.closed, "the client's connection: %s", s.describe())
        if s.clean or executor is good:
            check_clean(s, SMALL)
            check(dict(s.headers).get("x-from") == value, "head was %s", s.headers)
            check(dict(s.trailers).get("x-from") == value, "trailers were %s", s.trailers)
            clean += 1
        else:
            check(s.status not in (None, 0) or s.reset not in (None, wire.NO_ERROR, wire.CANCEL), "got %s",
                  s.describe())
    t.tolerate_violations = True  # towards the two: they may be cut off
    return f"{clean} of 9 answers clean"
