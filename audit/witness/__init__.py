"""A second party that remembers what a log said of itself, and says so: C2SP tlog-witness v1.0.0."""
