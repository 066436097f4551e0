"""The table of sources: a new one is a module here and a row."""

from meshstage.preparation.source import Reader

READERS: dict[str, Reader] = {}
