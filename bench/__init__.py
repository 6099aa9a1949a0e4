"""Measurements of KV Console: `python -m bench`."""
