"""Delta tables: pin a version, read, write, guard."""
