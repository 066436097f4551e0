"""Population motion models that need no network."""
