#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a Ballista scheduler that cannot advertise a Flight endpoint advertise one.

    advertise_shim.py LISTEN_HOST:PORT SCHEDULER_HOST:PORT ADVERTISED_HOST:PORT

A gRPC pass-through in front of the scheduler: clients talk to it instead. Every method and message
passes as bytes, except that each ballista.protobuf.GetJobStatusResult gets one field appended,

    oneof flight_proxy { bool local = 2; string external = 3; }      external = ADVERTISED

(in protobuf the last member of a oneof wins). From it a client knows from where to fetch results.
Ballista 55's own scheduler needs none of this: it has --advertise-flight-endpoint; so has the
program ballista-scheduler of 52 to 54 (--advertise-flight-sql-endpoint), but not the scheduler of
the Python package.

Prints `ready`; runs until SIGTERM or until standard input, if that is a pipe, is closed.
"""
import os
import signal
import stat
import sys
from concurrent import futures

import grpc

THREADS = 64  # a submitted query holds one until it has finished
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

# The methods that answer with GetJobStatusResult, once or as a stream.
STATUS_METHODS = {
    "/ballista.protobuf.SchedulerGrpc/GetJobStatus",
    "/ballista.protobuf.SchedulerGrpc/ExecuteQueryPush",
}
# Belong to one hop; gRPC sets its own on the other.
HOP_HEADERS = {"user-agent", "te", "content-type", "grpc-accept-encoding", "grpc-encoding",
               "accept-encoding"}
# What "no deadline" looks like in ServicerContext.time_remaining() is a very large number.
LONGEST_DEADLINE = 1_000_000


def external_field(address):
    """The bytes of `external = address`: field 3, length-delimited."""
    value = address.encode()
    if len(value) > 127:
        sys.exit("advertise_shim: the address is longer than 127 bytes")
    return bytes([3 << 3 | 2, len(value)]) + value


class PassThrough(grpc.GenericRpcHandler):
    def __init__(self, channel, suffix):
        self.channel = channel
        self.suffix = suffix

    def service(self, details):
        suffix = self.suffix if details.method in STATUS_METHODS else b""
        call_method = self.channel.stream_stream(details.method, None, None)

        def handle(requests, context):
            metadata = [(key, value) for key, value in context.invocation_metadata()
                        if key not in HOP_HEADERS and not key.startswith(":")]
            left = context.time_remaining()
            call = call_method(requests, metadata=metadata,
                               timeout=left if left and left < LONGEST_DEADLINE else None)
            context.add_callback(call.cancel)
            try:
                context.send_initial_metadata(call.initial_metadata())
                for message in call:
                    yield message + suffix
            except grpc.RpcError:
                pass  # its status is passed on below
            context.set_trailing_metadata(call.trailing_metadata() or ())
            if call.code() != grpc.StatusCode.OK:
                context.abort(call.code(), call.details() or "")

        return grpc.stream_stream_rpc_method_handler(handle, None, None)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    listen, scheduler, advertised = sys.argv[1:]
    channel = grpc.insecure_channel(scheduler, options=UNLIMITED)
    server = grpc.server(futures.ThreadPoolExecutor(THREADS),
                         handlers=[PassThrough(channel, external_field(advertised))],
                         options=UNLIMITED + [("grpc.so_reuseport", 0)])
    if server.add_insecure_port(listen) == 0:
        sys.exit(f"advertise_shim: cannot listen on {listen}")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this
    server.start()
    print("ready", flush=True)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        sys.stdin.buffer.read()
        os._exit(0)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
