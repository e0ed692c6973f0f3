"""Clients that read the beginning of streams and then wait to be stopped: run by `_service_faults`.

python _service_hangers.py ADDRESS WATCHED FETCHED WATCHERS READERS
"""

from __future__ import annotations

import sys
import time

import grpc

from goffish.v1 import jobs_pb2


def main() -> None:
    address, watched, fetched, watchers, readers = sys.argv[1:]
    asked = [("Watch", jobs_pb2.WatchRequest(id=watched))] * int(watchers)
    asked += [("FetchResult", jobs_pb2.FetchResultRequest(id=fetched))] * int(readers)
    streams = []
    for method, request in asked:
        channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        stream = iter(channel.unary_stream(f"/goffish.v1.JobService/{method}")(request.SerializeToString()))
        next(stream)
        streams.append((channel, stream))
    print("reading", flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    main()
