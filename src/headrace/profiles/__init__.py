"""Compute profiles: from TOML to a checked, resolved launch plan."""
