"""Rules that ask for operations by themselves: retention, sessions that ended, residency, quotas.

A rule looks at what is there and at what was decided; of one matter at most one operation is open, so it may look as
often as it likes, in several processes. What it asked for is done by the engine, like anything else.
"""
