"""gRPC API of the scheduling service: jobs, plans and catalogues."""
