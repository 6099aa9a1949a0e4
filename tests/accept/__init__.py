"""One test for each line under "Seen from outside" of an issue; `make accept ONLY=<word>` runs those of one."""
