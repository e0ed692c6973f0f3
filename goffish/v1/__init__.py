"""Messages and stubs of the protocol ``goffish.v1``, made from proto/ when the package is built; extra `service`."""
