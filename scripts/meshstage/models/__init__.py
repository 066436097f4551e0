"""A model directory on disk: names, checkpoint, live folder, owner, siblings, journal, watch."""
