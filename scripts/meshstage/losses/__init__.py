"""Loss terms that any network may have beside the data term, one per module."""
