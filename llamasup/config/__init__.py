"""The configuration: models of the file, resolving them to specs and policies, and checking them."""
