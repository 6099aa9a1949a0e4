"""The rules of KV Console: what a namespace, block, event, plan and proof *is*.

Pure Python: no framework, no I/O, no clock, no randomness, so the same rules run in the console,
in node agents and in simulations. Import contracts in `pyproject.toml` keep it so.
"""
