"""Selective replication: hot copies of the operators that matter most, on the cores that nothing else uses."""
