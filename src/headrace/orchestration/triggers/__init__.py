"""Looks for what triggers wait for, and starts their runs."""
