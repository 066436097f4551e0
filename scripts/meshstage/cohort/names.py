"""Subject ids and the file names that stand for them; names of a template's files."""

import re
import unicodedata

from meshstage.errors import InputError
from meshstage.files import shorten

MAX_STEM_BYTES = 200

# Files of a template, which a model directory repeats (MONAI Physio's names).
EDGE_INDEX = "shared_edge_index.pt"
EDGE_FEATURES = "shared_edge_features.pt"
SHAPE_MODEL = "pca_model.json"


def checked_text(value: str) -> str:
    """Give text back; ValueError if it is empty or cannot be a name."""
    if not value.strip():
        raise ValueError("is empty")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    if re.search("[\ud800-\udfff]", value):
        raise ValueError("holds half of a surrogate pair, which is no character")
    return value


def checked_id(value: str) -> str:
    """Give a subject id back; ValueError if it cannot become a file name."""
    checked_text(value)
    if re.search(r"[/\\]", value) or value.strip() in (".", ".."):
        raise ValueError("would leave the output folder, it is a path and not a name")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ValueError("holds a control character")
    length = len(_encode(value))
    if length > MAX_STEM_BYTES:
        raise ValueError(
            f"takes {length} bytes as a file name, at most {MAX_STEM_BYTES} are allowed"
        )
    return value


_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
# Device names of Windows, and the stems of rows without a usable id.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)|row-\d+$", re.IGNORECASE)


def subject_stem(subject_id: str) -> str:
    """Turn a subject id into the file name that stands for it.

    ASCII letters, digits, ``_``, ``-`` and inner ``.`` stay. Every other byte of the UTF-8 text
    becomes ``=`` and two hexadecimal digits. Where there are capitals, ``+`` and a hexadecimal
    number follow, whose bit k is set if letter k is one (``P01`` is ``P01+1``): two ids never
    share a stem, not even on a file system that takes ``a`` and ``A`` for the same.

    Raises
    ------
    InputError
        If the id is empty, would leave the output folder, holds control characters, or
        takes more than 200 bytes.
    """
    try:
        return _encode(checked_id(subject_id))
    except ValueError as error:
        raise InputError(f"the subject_id {shorten(subject_id)!r} {error}") from None


def _encode(subject_id: str) -> str:
    escape_first = subject_id[:1] in (".", "-") or _RESERVED.match(subject_id)
    parts = []
    for index, character in enumerate(subject_id):
        at_edge = (index == 0 and escape_first) or (
            character == "." and index == len(subject_id) - 1
        )
        if character in _SAFE and not at_edge:
            parts.append(character)
        else:
            parts += [f"={byte:02x}" for byte in character.encode()]
    body = "".join(parts)
    letters = [c for c in re.sub(r"=..", "", body) if c.isalpha()]
    capitals = sum(1 << k for k, letter in enumerate(letters) if letter.isupper())
    return body + (f"+{capitals:x}" if capitals else "")
