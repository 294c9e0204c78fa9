"""Child processes: launching, ending and reading them. The only package that starts processes."""
