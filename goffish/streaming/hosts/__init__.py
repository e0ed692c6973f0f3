"""Workers of one flow on several hosts: an agent on each of them, and gRPC streams between them."""

import os

# gRPC reports connections that end on standard error, also those that are made again; read when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
