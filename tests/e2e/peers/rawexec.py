# SPDX-License-Identifier: Apache-2.0
"""
An executor made of bytes. No library judges what it sends, and it takes whatever it gets: a script
says what goes out and reads what has come in.

    def script(conn):                  # runs in a thread of its own, once per connection
        conn.start()                   # SETTINGS
        number = conn.request()        # waits for a whole request
        conn.send(head(number))
        conn.data(number, 1000)        # waits for credit
        conn.send(wire.frame(...))     # or anything else
"""
import socket
import struct
import threading
import time

from . import wire
from .link import Failed, WAIT_SECONDS


def literal(name, value):
    """A header field that says nothing to any dynamic table. Both up to 126 bytes."""
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


STATUS_200 = b"\x88"  # of the static table
CONTENT_TYPE = literal(b"content-type", b"application/grpc")
HEAD_BLOCK = STATUS_200 + CONTENT_TYPE
TRAILER_BLOCK = literal(b"grpc-status", b"0")


def headers(number, block, flags=wire.END_HEADERS):
    return wire.frame(wire.HEADERS, flags, number, block)


def head(number):
    return headers(number, HEAD_BLOCK)


def trailers(number, block=TRAILER_BLOCK):
    return headers(number, block, wire.END_HEADERS | wire.END_STREAM)


def data(number, content, flags=0):
    return wire.frame(wire.DATA, flags, number, content)


class Over(Exception):
    """Ends a script: the other side ended the connection."""


class RawConnection:
    def __init__(self, executor, sock):
        self.executor, self.sock = executor, sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.cond = threading.Condition()
        self.frames = []
        self.credit = {}  # stream: bytes granted and not yet used
        self.closed = None  # "fin" or "reset"
        self.taken = 0  # requests that request() has returned
        self.reading = True  # the case may stop it, under cond
        self.released = False  # for the case and its script

    # ---- what came

    def read(self):
        splitter, preface = wire.FrameSplitter(), len(wire.PREFACE)
        how = "fin"
        try:
            while True:
                with self.cond:
                    self.cond.wait_for(lambda: self.reading)
                chunk = self.sock.recv(65536)
                if not chunk:
                    break
                skip = min(preface, len(chunk))
                preface -= skip
                found = splitter.feed(chunk[skip:], time.monotonic())
                with self.cond:
                    for f in found:
                        self.frames.append(f)
                        if f.kind == wire.WINDOW_UPDATE:
                            n = struct.unpack(">I", f.payload)[0]
                            self.credit[f.stream] = self.credit.get(f.stream, 0) + n
                    self.cond.notify_all()
        except OSError:
            how = "reset"
        with self.cond:
            self.closed = how
            self.cond.notify_all()
        self.finish()

    def wait(self, predicate, what, seconds=WAIT_SECONDS):
        with self.cond:
            if not self.cond.wait_for(predicate, seconds):
                raise Failed(f"executor: not within {seconds:g} s: {what} [{self.closed or 'open'}, "
                             f"last frames {self.frames[-4:]}]")

    def has(self, kind, stream=None):
        return [f for f in self.frames if f.kind == kind and stream in (None, f.stream)]

    def goaway(self):
        """The code of the first GOAWAY, or None."""
        found = self.has(wire.GOAWAY)
        return struct.unpack_from(">I", found[0].payload, 4)[0] if found else None

    def request(self, seconds=WAIT_SECONDS):
        """The stream of the next request that has come whole."""
        def whole():
            heads = [f.stream for f in self.has(wire.HEADERS)]
            if len(heads) <= self.taken:
                return None
            number = heads[self.taken]
            return number if any(f.flags & wire.END_STREAM for f in self.frames if f.stream == number) else None
        self.wait(lambda: whole() or self.closed, "a request", seconds)
        number = whole()
        if not number:
            raise Over
        self.taken += 1
        return number

    # ---- what goes

    def send(self, content):
        try:
            self.sock.sendall(content)
        except OSError:
            raise Over from None

    def start(self, settings=None):
        self.send(wire.settings({wire.MAX_CONCURRENT_STREAMS: 100, **(settings or {})}))

    def take(self, number, count):
        """Waits for so much credit and uses it."""
        self.wait(lambda: self.credit.get(number, 0) >= count or self.closed, f"{count} bytes of credit")
        if self.closed:
            raise Over
        self.credit[number] -= count

    def data(self, number, count, size=16384):
        while count:
            self.wait(lambda: self.credit.get(number, 0) or self.closed, "credit", 20)
            if self.closed:
                raise Over
            n = min(count, size, self.credit[number])
            self.credit[number] -= n
            count -= n
            self.send(data(number, bytes(n)))

    def finish(self):
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def linger(self):
        """Until the other side has had enough."""
        self.wait(lambda: self.closed, "the proxy ends the connection", 60)


class RawExecutor:
    def __init__(self, script):
        self.script = script
        self.connections, self.errors = [], []
        self.cond = threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            c = RawConnection(self, sock)
            with self.cond:
                self.connections.append(c)
                self.cond.notify_all()
            threading.Thread(target=c.read, daemon=True).start()
            threading.Thread(target=self._run, args=(c,), daemon=True).start()

    def _run(self, connection):
        try:
            self.script(connection)
        except Over:
            pass
        except Exception as error:
            self.errors.append(error)

    def connection(self, index=0, seconds=WAIT_SECONDS):
        with self.cond:
            if not self.cond.wait_for(lambda: len(self.connections) > index, seconds):
                raise Failed(f"the executor did not get connection number {index}")
            return self.connections[index]

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for c in self.connections:
            try:
                c.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
