# SPDX-License-Identifier: Apache-2.0
"""pyarrow's Flight client and server with the proxy between them: gRPC's C++ core at both ends, an HTTP/2
implementation with habits of its own (Huffman, dynamic tables, PING for bandwidth, window changes)."""
import contextlib
import functools
import random
import subprocess
import sys
import threading
import time

from peers import wire
from peers.harness import SCALE, case, check, check_time, within
from peers.link import Failed
from peers.proxy import DATAPATH, NAIVE, free_port


ROWS = 100_000


def table(pieces):
    """pieces * 100,000 rows; every row differs, a third of the bytes does not compress."""
    import pyarrow as pa
    import pyarrow.compute as pc
    rnd = random.Random(1)
    ids = pa.array(range(ROWS), pa.int64())
    names = pa.array([f"row-{i % 1000}" for i in range(ROWS)])
    token = pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(rnd.randbytes(8 * ROWS))])
    return pa.concat_tables(pa.table({"id": pc.add(ids, i * ROWS), "token": pc.bit_wise_xor(token, i), "name": names})
                            for i in range(pieces))


class Server:
    """A Flight server; what a ticket asks for is the job id in it."""

    def __init__(self, stack, port=None):
        import pyarrow as pa
        import pyarrow.flight as flight
        outer = self
        self.cancelled = threading.Event()
        self.headers = []

        class Middleware(flight.ServerMiddlewareFactory):
            def start_call(self, info, headers):
                outer.headers.append(dict(headers))

        class Flight(flight.FlightServerBase):
            def do_get(self, context, ticket):
                return outer.answer(context, bytes(ticket.ticket))

        self.pa, self.flight = pa, flight
        self.small = table(1)
        self.port = port or free_port()
        self.server = Flight(f"grpc://127.0.0.1:{self.port}", middleware={"headers": Middleware()})
        stack.callback(self.server.shutdown)

    @functools.cached_property
    def table(self):
        return table(max(1, int(60 * SCALE)))

    def answer(self, context, action):
        flight, small = self.flight, self.small
        batch = small.slice(0, 1000).to_batches()[0]
        if b"large" in action:
            return flight.RecordBatchStream(self.table)
        if b"one-message" in action:
            return flight.RecordBatchStream(self.pa.Table.from_batches([self.table.combine_chunks().to_batches()[0]]))
        if b"refuse" in action:
            raise flight.FlightUnavailableError("come back later")
        if b"fail-after-3" in action:
            def failing():
                for _ in range(3):
                    yield batch
                raise flight.FlightServerError("disk 7 is on fire: 100% \u00fcber")
            return flight.GeneratorStream(batch.schema, failing())
        if b"endless" in action:
            def endless():
                try:
                    while not context.is_cancelled():
                        yield batch
                finally:  # also where it is blocked in the yield
                    self.cancelled.set()
            return flight.GeneratorStream(batch.schema, endless())
        if b"silent" in action:
            def silent():
                while not context.is_cancelled():
                    time.sleep(0.01)
                self.cancelled.set()
                yield batch
            return flight.GeneratorStream(batch.schema, silent())
        return flight.RecordBatchStream(small)

    def ticket(self, job):
        return self.flight.Ticket(wire.action("127.0.0.1", self.port, job=job))


def connect(t, server, proxy):
    client = server.flight.connect(f"grpc://{proxy.address[0]}:{proxy.address[1]}")
    t.stack.callback(client.close)
    return client


def start(t, *flags):
    server = Server(t.stack)
    return server, connect(t, server, t.proxy(*flags))


@case("flight/large-result", limit=120)
def _(t):
    server, client = start(t)
    got = client.do_get(server.ticket("large")).read_all()
    check(got.equals(server.table), "the table differs")
    client.close()
    return f"{got.nbytes / 1e6:.0f} MB"


@case("flight/one-large-message", limit=120)
def _(t):
    """All of it in one record batch: one gRPC message."""
    server, client = start(t)
    got = client.do_get(server.ticket("one-message")).read_all()
    check(got.equals(server.table), "the table differs")
    check(len(got.to_batches()) == 1, "%d batches", len(got.to_batches()))
    client.close()
    return f"{got.nbytes / 1e6:.0f} MB"


@case("flight/error-in-the-middle")
def _(t):
    """Three batches, then the server's own error with its own words."""
    server, client = start(t)
    reader = client.do_get(server.ticket("fail-after-3"))
    rows = 0
    try:
        while True:
            rows += reader.read_chunk().data.num_rows
    except StopIteration:
        raise Failed(f"a clean end after {rows} rows") from None
    except server.pa.ArrowException as error:
        check(rows == 3000, "%d rows before the error", rows)
        check("disk 7 is on fire: 100% \u00fcber" in str(error), "error %s", error)
    client.close()


@case("flight/error-at-once")
def _(t):
    server, client = start(t)
    try:
        client.do_get(server.ticket("refuse")).read_all()
        raise Failed("no error")
    except server.flight.FlightUnavailableError as error:
        check("come back later" in str(error), "error %s", error)
    client.close()


@case("flight/cancel")
def _(t):
    """The server's call is cancelled when the client cancels, and the client's next call is served."""
    server, client = start(t)
    reader = client.do_get(server.ticket("endless"))
    for _ in range(5):
        reader.read_chunk()
    begin = time.monotonic()
    reader.cancel()
    check(server.cancelled.wait(within(3)), "the server goes on after %.1f s", time.monotonic() - begin)
    took = time.monotonic() - begin
    check(client.do_get(server.ticket("small")).read_all().equals(server.small), "the table differs")
    client.close()
    return f"{took * 1000:.0f} ms"


@case("flight/deadline-of-the-client")
def _(t):
    server, client = start(t)
    options = server.flight.FlightCallOptions(timeout=0.5)
    begin = time.monotonic()
    try:
        client.do_get(server.ticket("silent"), options).read_all()
        raise Failed("no error")
    except server.flight.FlightTimedOutError:
        check_time(time.monotonic() - begin, within(2), "the deadline of 0.5 s")
    check(server.cancelled.wait(within(2)), "the server's call was not cancelled")
    client.close()


@case("flight/headers")
def _(t):
    server, client = start(t)
    options = server.flight.FlightCallOptions(headers=[(b"x-tenant", b"blue"), (b"authorization", b"Bearer t")])
    client.do_get(server.ticket("small"), options).read_all()
    seen = server.headers[-1]
    check(seen.get("x-tenant") == ["blue"] and seen.get("authorization") == ["Bearer t"], "headers %s", seen)
    client.close()


@case("flight/many-clients", limit=120)
def _(t):
    """12 clients at once, and 8 threads on one client's connection; each table compared."""
    server = Server(t.stack)
    p = t.proxy()
    wrong = []

    def work(client, turns):
        try:
            for _ in range(turns):
                if not client.do_get(server.ticket("small")).read_all().equals(server.small):
                    wrong.append("the table differs")
        except Exception as error:
            wrong.append(repr(error))
    shared = connect(t, server, p)
    clients = [connect(t, server, p) for _ in range(12)]
    threads = [threading.Thread(target=work, args=(c, 8)) for c in clients]
    threads += [threading.Thread(target=work, args=(shared, 8)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not wrong, "%d of 160 went wrong: %s", len(wrong), wrong[:1])
    for client in clients + [shared]:
        client.close()


@case("flight/bad-tickets")
def _(t):
    server, client = start(t)
    for ticket in (b"", b"not a ticket", wire.action("127.0.0.1", 0), wire.action(None, 1)):
        try:
            client.do_get(server.flight.Ticket(ticket)).read_all()
            raise Failed(f"{ticket} was answered")
        except (server.pa.ArrowInvalid, server.pa.ArrowException) as error:
            check("flightsplice:" in str(error), "error %s", error)
            check(isinstance(error, server.pa.ArrowInvalid), "error is a %s", type(error).__name__)
    client.close()


@case("flight/other-methods")
def _(t):
    server, client = start(t)
    for call in (lambda: list(client.list_flights()), lambda: list(client.list_actions()),
                 lambda: list(client.do_action(server.flight.Action("IO_BLOCK_TRANSPORT", b"x"))),
                 lambda: client.get_flight_info(server.flight.FlightDescriptor.for_path("x"))):
        try:
            call()
            raise Failed("answered")
        except NotImplementedError as error:
            check("flightsplice:" in str(error) or NAIVE, "error %s", error)
    client.close()


def serve(port):
    """A server as a process, until it is killed: see below."""
    Server(contextlib.ExitStack(), port)
    print("ready", flush=True)
    threading.Event().wait()


@case("flight/server-killed")
def _(t):
    """The server's process dies in the middle of a stream: an error at the client, not an end."""
    import pyarrow.flight as flight
    port = free_port()
    process = t.process([sys.executable, "-c", f"import cases_flight; cases_flight.serve({port})"],
                        stdout=subprocess.PIPE)
    check(process.stdout.readline() == b"ready\n", "the server did not start")
    p = t.proxy()
    client = flight.connect(f"grpc://{p.address[0]}:{p.address[1]}")
    t.stack.callback(client.close)
    reader = client.do_get(flight.Ticket(wire.action("127.0.0.1", port, job="endless")))
    rows = 0
    try:
        while True:
            rows += reader.read_chunk().data.num_rows
            if rows == 50_000:
                process.kill()
    except StopIteration:
        raise Failed(f"a clean end after {rows} rows") from None
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    check("flightsplice:" in text or DATAPATH != "relay", "told: %s", text)
    client.close()
    return text[:150]
