"""The steps of the schema, one file each."""
