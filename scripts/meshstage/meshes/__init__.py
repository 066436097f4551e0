"""Mesh files of other people: formats, signatures, reading, cells."""
