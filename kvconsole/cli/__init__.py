"""The command line `kvc`: what the REST API offers, as tables for people and JSON for programs."""
