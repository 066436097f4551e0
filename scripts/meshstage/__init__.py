"""Predict how an organ's mesh moves: the library behind the workflow and its scripts."""
