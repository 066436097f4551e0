"""Files as this program writes and reads its own: atomic writes, strict JSON, hashes."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from meshstage.errors import InputError, Problem

_TEMPORARY_PREFIX = ".meshstage-"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; on success it becomes ``path``, else it is removed.

    The file is flushed to disk before it is renamed, and the folder after it: a reader, or the
    next start after a power cut, sees the old file or the whole new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; a result is as readable as any other new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporaries(directory: Path) -> None:
    """Remove what a process that was killed in the middle of a write left in a folder."""
    for path in directory.glob(f"{_TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (no NaN, no Infinity) atomically, readable by people."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def write_array(path: Path, array: np.ndarray) -> None:
    """Write one array as ``.npy`` atomically."""
    with atomic(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, array)


def read_json(path: Path) -> Any:
    """Read strict JSON: UTF-8 with or without a byte-order mark, no NaN, no key twice.

    Raises
    ------
    InputError
        If the file is missing, not UTF-8, or not strict JSON; with line and column where
        there is one.
    """

    def problem(what: str, todo: str) -> InputError:
        return InputError(Problem(what=what, todo=todo, file=str(path)))

    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise problem("the file does not exist", "check the path") from None
    except OSError as error:
        raise problem(f"the file cannot be read ({error.strerror})", "check it") from None
    if not raw.strip():
        raise problem("the file is empty, not valid JSON", "write it again") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise problem(
            f"the file is not UTF-8 (byte {error.start}: {error.reason})", "save it as UTF-8"
        ) from None
    try:
        return json.loads(
            text, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise problem(
            f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            "mend the file",
        ) from None
    except (ValueError, RecursionError) as error:
        token = str(error)
        # The hooks of the json module do not know where they are; the first such token does.
        line = next((n for n, row in enumerate(text.splitlines(), 1) if token in row), None)
        where = f" at line {line}" if line else ""
        kind = "a key stands twice in one object" if token.startswith('"') else "no number of JSON"
        raise problem(f"not valid JSON: {token}{where} ({kind})", "mend the file") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(json.dumps(key, ensure_ascii=False))
        result[key] = value
    return result


def _no_constant(token: str) -> float:
    raise ValueError(token)


def _finite(token: str) -> float:
    value = float(token)
    if not np.isfinite(value):
        raise ValueError(token)
    return value


def sha256(*parts: np.ndarray | bytes | str) -> str:
    """Hash values as bytes: arrays in C order with shape and type, text as UTF-8."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()
