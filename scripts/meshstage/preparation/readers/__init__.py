"""The table of sources: a new one is a module here and a row."""

from meshstage.preparation.readers import (
    biv_me,
    cardiac_atlas,
    generic,
    shapeworks,
    uk_digital_heart,
)
from meshstage.preparation.source import Reader

READERS: dict[str, Reader] = {
    row.name: row
    for row in (
        generic.READER,
        shapeworks.READER,
        biv_me.READER,
        uk_digital_heart.READER,
        cardiac_atlas.READER,
    )
}
