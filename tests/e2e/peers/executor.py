# SPDX-License-Identifier: Apache-2.0
"""A pretend executor that follows a script.

    def script(call):                   # runs in a thread of its own once the request head is there
        call.head()
        call.send(payload)              # obeys windows, blocks on them
        call.trailers(0)

Everything illegal is possible too: call.link is the raw connection.
"""
import socket
import threading
import time

import h2.events
import h2.exceptions
import h2.settings

from . import wire
from .link import Failed, Link, WAIT_SECONDS


class Gone(Exception):
    """Ends a script: its stream or connection was ended from the other side."""


class Call:
    """One request and the script's answer to it."""

    def __init__(self, link, number, headers):
        self.link, self.number, self.headers = link, number, headers
        self.body = bytearray()
        self.complete = False  # END_STREAM of the request
        self.reset = None  # code of a RST_STREAM received
        self.released_at = None  # when the stream ended from the other side: RST_STREAM or connection
        self.sent = 0

    # ---- the request

    def wait_request(self, seconds=WAIT_SECONDS):
        self.link.wait(lambda: self.complete or self.released_at, "whole request at the executor", seconds)
        return bytes(self.body)

    def wait_released(self, seconds=WAIT_SECONDS):
        self.link.wait(lambda: self.released_at, "executor's stream reset or closed", seconds)
        return self.released_at

    # ---- the answer

    def head(self, extra=(), end=False, status="200"):
        self._send(lambda: self.link.h2.send_headers(
            self.number, [(":status", status), ("content-type", "application/grpc")] + list(extra), end_stream=end))

    def trailers(self, status=0, extra=()):
        self._send(lambda: self.link.h2.send_headers(
            self.number, [("grpc-status", str(status))] + list(extra), end_stream=True))

    def trailers_only(self, pairs):
        self.head(extra=pairs, end=True)

    def window(self):
        """Bytes that may be sent now."""
        try:
            return min(self.link.h2.local_flow_control_window(self.number), self.link.h2.max_outbound_frame_size)
        except h2.exceptions.ProtocolError:
            return 0

    def wait_window(self, count=1, seconds=WAIT_SECONDS):
        """Waits for room for so many DATA bytes."""
        def ready():
            return self.released_at or self.link.h2.local_flow_control_window(self.number) >= count
        self.link.wait(ready, f"executor is granted {count} bytes", seconds)
        self._check()

    def send(self, data, frame_size=16384, pad=None, end=False):
        """DATA frames as windows allow; blocks without limit (the case has one)."""
        view = memoryview(data)
        while view:
            with self.link.cond:
                self.link.cond.wait_for(lambda: self.released_at or self.window() > (pad or 0))
                self._check()
                room = min(self.window(), frame_size) - (pad + 1 if pad is not None else 0)
                if room <= 0:
                    self.link.cond.wait(0.05)
                    continue
                piece, view = view[:room], view[room:]
                self.link.h2.send_data(self.number, bytes(piece), end_stream=end and not view, pad_length=pad)
                self.link.flush()
                self.sent += len(piece)

    def raw_partial_data(self, announced, given):
        """The head of a DATA frame and only `given` of its bytes. The window must have room."""
        self.link.raw(wire.frame(wire.DATA, 0, self.number, bytes(announced))[:9 + given])

    def rst(self, code):
        self._send(lambda: self.link.h2.reset_stream(self.number, code))

    def _send(self, what):
        with self.link.cond:
            self._check()
            try:
                what()
            except h2.exceptions.StreamClosedError:
                raise Gone from None
            self.link.flush()

    def _check(self):
        if self.released_at:
            raise Gone


class ExecutorLink(Link):
    def __init__(self, executor, sock):
        super().__init__(sock, client_side=False)
        self.executor = executor
        self.calls = {}
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=executor.settings)
        self.started = threading.Event()  # scripts wait for it: SETTINGS must be the first frame
        if executor.speaks:
            self.start()
        else:
            self.mute = True
        self.thread.start()

    def start(self):
        """The server's own preface."""
        with self.cond:
            self.h2.initiate_connection()
            self.mute = False
            self.flush()
        self.started.set()

    def on_event(self, event, frame):
        call = self.calls.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.RequestReceived):
            call = self.calls[event.stream_id] = Call(self, event.stream_id, list(event.headers))
            self.executor._call(call)
        elif isinstance(event, h2.events.DataReceived):
            call.body += event.data
            if event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            call.complete = True
        elif isinstance(event, h2.events.StreamReset) and event.remote_reset and call:
            call.reset = event.error_code
            call.released_at = call.released_at or frame.at

    def on_closed(self):
        for call in self.calls.values():
            call.released_at = call.released_at or self.closed_at


class Executor:
    """A listening pretend executor; its address goes into tickets."""

    def __init__(self, script, settings=None, speaks=True, host="127.0.0.1", port=0, backlog=512):
        self.script = script
        self.settings = {wire.MAX_CONCURRENT_STREAMS: 200}
        self.settings.update(settings or {})
        self.speaks = speaks  # False: accepts TCP and reads, but sends nothing until link.start()
        self.links = []
        self.calls = []  # all requests, in order of arrival
        self.errors = []  # exceptions of scripts
        self.cond = threading.Condition()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, port), family=family, backlog=backlog)
        self.address = (host, self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self.cond:
                self.links.append(ExecutorLink(self, sock))
                self.cond.notify_all()

    def _call(self, call):
        with self.cond:
            call.index = len(self.calls)
            self.calls.append(call)
            self.cond.notify_all()
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call):
        try:
            call.link.started.wait()
            self.script(call)
        except Gone:
            pass
        except Exception as error:  # told by close(): a broken script must not look like a quiet executor
            if not call.released_at:
                self.errors.append(error)

    def wait_call(self, index=0, seconds=WAIT_SECONDS):
        """The index-th request to arrive."""
        with self.cond:
            if not self.cond.wait_for(lambda: len(self.calls) > index, seconds):
                raise Failed(f"the executor did not get request number {index} within {seconds} s "
                             f"(connections: {len(self.links)}, requests: {len(self.calls)})")
            return self.calls[index]

    def wait_link(self, index=0, seconds=WAIT_SECONDS):
        with self.cond:
            if not self.cond.wait_for(lambda: len(self.links) > index, seconds):
                raise Failed(f"the executor did not get connection number {index} within {seconds} s")
            return self.links[index]

    def violations(self):
        """What the other side did wrong, as the h2 library sees it."""
        return [link.violation for link in self.links if link.violation]

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            pass
        self.listener.close()
        for link in self.links:
            link.close()


def reply(payload, status=0):
    """A script that answers every request with payload and trailers."""
    def script(call):
        call.wait_request()
        call.head()
        call.send(payload)
        call.trailers(status)
    return script
