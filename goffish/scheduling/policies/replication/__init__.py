"""Selective replication: hot replicas of the most important operators on otherwise unused cores."""
