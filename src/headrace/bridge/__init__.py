"""Delta tables to Ray Data and back."""
