"""The scheduling service: jobs, plans and catalogues by gRPC."""
