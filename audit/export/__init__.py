"""Exports of the log: which records, in which renderings, in a signed bundle that is the same however often it is made.

`select` finds the records, `records` reads them, `jsonl`, `csvrows`, `ocsf` and `parquet` render them, `bundle` packs
and `making` does it all in steps that survive a kill. `docs/bundle.md` is the format.
"""
