"""Execution of jobs: folders, workers and the supervisor."""
