"""Engines: the Spark session, the Ray cluster, and the child process that a task runs in."""
