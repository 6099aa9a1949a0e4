"""Pages of operations: deletions from the form to the certificate, and what else two persons decide."""
