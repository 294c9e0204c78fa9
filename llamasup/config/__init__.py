"""The configuration: the models of the file, what they resolve to, and the checks."""
