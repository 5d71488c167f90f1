# SPDX-License-Identifier: Apache-2.0
"""A result client whose every frame, window and pause a test decides."""
import socket
import time
import urllib.parse

import h2.events
import h2.settings

from . import wire
from .link import Failed, Link, WAIT_SECONDS

DO_GET = "/arrow.flight.protocol.FlightService/DoGet"


class Stream:
    """What came on one stream."""

    def __init__(self, client, number):
        self.client, self.number = client, number
        self.opened_at = time.monotonic()
        self.headers = None  # the response head, list of (name, value)
        self.trailers = None
        self.data = bytearray()
        self.frames = []  # HEADERS and DATA as they were on the wire
        self.ended = False  # END_STREAM
        self.reset = None  # code of RST_STREAM
        self.done_at = None
        self.auto = True  # grants back what it reads, on the stream

    @property
    def done(self):
        return self.ended or self.reset is not None or bool(self.client.closed)

    @property
    def status(self):
        """grpc-status as a number; None without one."""
        for name, value in (self.trailers or []) + (self.headers or []):
            if name == "grpc-status":
                return int(value)
        return None

    @property
    def message(self):
        for name, value in (self.trailers or []) + (self.headers or []):
            if name == "grpc-message":
                return urllib.parse.unquote(value)
        return ""

    @property
    def clean(self):
        """What a client takes for a complete result."""
        return self.ended and self.status == 0 and dict(self.headers).get(":status") == "200"

    def wait_done(self, seconds=WAIT_SECONDS):
        self.client.wait(lambda: self.done, f"end of stream {self.number} after {len(self.data)} bytes", seconds)
        return self

    def wait_bytes(self, count, seconds=WAIT_SECONDS):
        self.client.wait(lambda: len(self.data) >= count or self.done,
                         f"{count} bytes on stream {self.number}, has {len(self.data)}", seconds)
        if len(self.data) < count:
            raise Failed(f"stream {self.number} ended after {len(self.data)} of {count} bytes: {self.describe()}")

    def wait_head(self, seconds=WAIT_SECONDS):
        self.client.wait(lambda: self.headers or self.done, f"response head of stream {self.number}", seconds)

    def grant(self, count):
        with self.client.cond:
            self.client.h2.increment_flow_control_window(count, self.number)
            self.client.flush()

    def send(self, data, end=False, reshape=None):
        with self.client.cond:
            self.client.h2.send_data(self.number, data, end_stream=end)
            self.client.flush(reshape)

    def rst(self, code=wire.CANCEL):
        with self.client.cond:
            self.client.h2.reset_stream(self.number, code)
            self.client.flush()

    def describe(self):
        if self.reset is not None:
            end = f"RST_STREAM({self.reset})"
        elif self.ended:
            end = f"END_STREAM, grpc-status {self.status} '{self.message}'"
        else:
            end = f"no end; connection {self.client.closed or 'open'}"
        if self.client.violation:
            end += f"; {self.client.violation}"
        return f"{len(self.data)} bytes, {end}"


class Client(Link):
    def __init__(self, address, window=65535, conn_window=65535, settings=None, receive_buffer=None, start=True):
        sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect(address)
        sock.settimeout(None)
        super().__init__(sock, client_side=True)
        self.authority = f"{address[0]}:{address[1]}"
        self.streams = {}
        self.auto = True  # grants back what it reads, on the connection
        values = {wire.ENABLE_PUSH: 0, wire.INITIAL_WINDOW_SIZE: window, wire.MAX_FRAME_SIZE: 16384}
        values.update(settings or {})
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values=values)
        self.h2.max_inbound_frame_size = values[wire.MAX_FRAME_SIZE]
        if start:
            self.h2.initiate_connection()
            if conn_window > 65535:
                self.h2.increment_flow_control_window(conn_window - 65535)
            self.flush()
            self.thread.start()

    def request(self, body=b"", path=DO_GET, metadata=(), end=True, reshape=None, headers=None):
        """Opens a stream. body is the request message with its prefix; end: END_STREAM in an empty DATA after it."""
        head = headers or [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", self.authority),
                           ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "tonic/0.14.6")]
        with self.cond:
            number = self.h2.get_next_available_stream_id()
            stream = self.streams[number] = Stream(self, number)
            self.h2.send_headers(number, head + list(metadata))
            if body:
                self.h2.send_data(number, body)
            if end:
                self.h2.send_data(number, b"", end_stream=True)
            self.flush(reshape)
        return stream

    def get(self, executor, reshape=None, metadata=(), **ticket):
        """DoGet for a pretend executor."""
        return self.request(wire.ticket(*executor.address, **ticket), reshape=reshape, metadata=metadata)

    def grant(self, count):
        with self.cond:
            self.h2.increment_flow_control_window(count)
            self.flush()

    def change_settings(self, values):
        """SETTINGS; takes effect on the other side's ACK, which is waited for."""
        with self.cond:
            before = sum(f.kind == wire.SETTINGS and f.flags & wire.ACK for f in self.frames)
            self.h2.update_settings(values)
            self.flush()
        self.wait(lambda: sum(f.kind == wire.SETTINGS and f.flags & wire.ACK for f in self.frames) > before,
                  "SETTINGS ACK")

    def on_event(self, event, frame):
        stream = self.streams.get(getattr(event, "stream_id", None))
        if not stream:
            return
        if frame.kind in (wire.HEADERS, wire.DATA) and (not stream.frames or stream.frames[-1] is not frame):
            stream.frames.append(frame)
        if isinstance(event, h2.events.ResponseReceived):
            stream.headers = list(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            stream.trailers = list(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            stream.data += event.data
            self._give_back(stream, event.flow_controlled_length)
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
            stream.done_at = frame.at
        elif isinstance(event, h2.events.StreamReset) and event.remote_reset:
            stream.reset = event.error_code
            stream.done_at = frame.at

    def _give_back(self, stream, count):
        if not count:
            return
        if self.auto:
            self.h2.increment_flow_control_window(count)
        if stream.auto:
            try:
                self.h2.increment_flow_control_window(count, stream.number)
            except h2.exceptions.StreamClosedError:
                pass

    def on_closed(self):
        for stream in self.streams.values():
            if stream.done_at is None:
                stream.done_at = self.closed_at
