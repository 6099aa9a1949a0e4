"""The offline verifier: one file that needs nothing of this project."""
