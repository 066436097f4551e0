"""Files as this program writes and reads its own: atomic writes, strict JSON, hashes."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from meshstage.errors import InputError, Problem

Record = TypeVar("Record")

_TEMPORARY_PREFIX = ".meshstage-"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What CIFS, FUSE and shared folders answer to calls that they do not know.
_UNSUPPORTED = {errno.EPERM, errno.ENOTSUP, errno.EINVAL}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk, or a limit on the size of files, into a sentence.

    Raises
    ------
    InputError
        Naming ``path``.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        what = f"the file cannot be written ({error.strerror})"
        raise InputError(Problem(what, "free space and run again", str(path))) from error


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; on success it becomes ``path``, else it is removed.

    The file is flushed to disk before it is renamed, and the folder after it: a reader, or the
    next start after a power cut, sees the old file or the whole new one.

    Raises
    ------
    InputError
        If the disk is full.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Writers go by the ending, and .gz is half of one.
        suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
        handle, name = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, suffix=suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            # mkstemp makes private files; a result is as readable as any other new file.
            umask = os.umask(0)
            os.umask(umask)
            with _if_supported():
                temporary.chmod(0o666 & ~umask)
            _sync_path(temporary)
            temporary.replace(path)
            _sync_path(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _if_supported() -> Iterator[None]:
    """Let a file system do without a call that it does not know."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def sync(descriptor: int) -> None:
    """Flush an open file to disk, where the file system can."""
    with _if_supported():
        os.fsync(descriptor)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporaries(directory: Path) -> None:
    """Remove what a process that was killed in the middle of a write left in a folder."""
    for path in directory.glob(f"{_TEMPORARY_PREFIX}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (no NaN, no Infinity) atomically, readable by people."""
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    if re.search("[\ud800-\udfff]", text):
        # Half of a surrogate pair (a file name that is not UTF-8) exists only escaped.
        text = json.dumps(value, indent=2, allow_nan=False)
    write_text(path, text + "\n")


def write_array(path: Path, array: np.ndarray) -> None:
    """Write one array as ``.npy`` atomically."""
    with atomic(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, array)


def file_problem(path: Path) -> Problem | None:
    """Say why a path that somebody wrote is not a readable file; None if it is one.

    Nothing in a path is expanded; where that, or a Windows path, is the likely reason, the
    problem says so. Only regular files pass: reading a pipe or a device would never end.
    """
    try:
        if path.is_file():
            if os.access(path, os.R_OK):
                return None
            what, todo = "the file cannot be read (permission denied)", "change its permissions"
        elif path.is_symlink():
            target = os.fsdecode(path.readlink())
            what = f"is a symbolic link to {target}, which {_why_dangling(path)}"
            todo = "mend the link"
        elif path.is_dir():
            what, todo = "is a folder, not a file", "name a file in it"
        elif path.exists():
            what, todo = "is neither a file nor a link to one", "name a regular file"
        else:
            what, todo = "the file does not exist (not found)", _path_hint(path)
    except (OSError, ValueError) as error:  # too long, a loop of links, a NUL character
        reason = getattr(error, "strerror", None) or str(error)
        what, todo = f"the path cannot be used ({reason})", "write another path"
    return Problem(what=what, todo=todo, file=str(path))


def _why_dangling(path: Path) -> str:
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "leads in a circle"
    return "does not exist (not found)"


def real_path(path: Path) -> str:
    """Give the file that a path leads to, links followed, for telling files apart."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a path that no file can have
        return str(path)


def _path_hint(path: Path) -> str:
    text = str(path)
    if "~" in {part[:1] for part in path.parts}:
        return "write the whole path: '~' is not expanded"
    if re.search(r"\$\w|\$\{|%\w+%", text):
        return "write the whole path: environment variables are not expanded"
    if "\\" in text:
        return "write '/' between folders, not '\\'"
    if re.search(r"\b\w{2,}:/", text):
        return "download it first: only files of this machine are read"
    missing = path
    while not missing.parent.is_dir() and missing.parent != missing:
        missing = missing.parent
    names = {_loose(other.name): other.name for other in missing.parent.iterdir()}
    if _loose(missing.name) in names:
        return f"its folder has {names[_loose(missing.name)]!r}: mind upper and lower case, accents"
    if missing != path:
        return f"check the path: there is no folder {missing}"
    return "check the path"


def _loose(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def read_text(path: Path) -> str:
    """Read UTF-8 text with or without a byte-order mark.

    Raises
    ------
    InputError
        If the file is missing, cannot be read, or is not UTF-8.
    """
    if problem := file_problem(path):
        raise InputError(problem)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        what, todo = f"the file cannot be read ({error.strerror})", "check it"
    except UnicodeDecodeError as error:
        what = f"the file is not UTF-8 (it does not decode at byte {error.start}: {error.reason})"
        todo = "save it with the encoding UTF-8"
    raise InputError(Problem(what=what, todo=todo, file=str(path)))


def read_json(path: Path) -> Any:
    """Read strict JSON: UTF-8 with or without a byte-order mark, no NaN, no key twice.

    Raises
    ------
    InputError
        If the file is missing, not UTF-8, or not strict JSON; with line and column.
    """
    text = read_text(path)

    def problem(what: str, position: int | None = None) -> InputError:
        where = "" if position is None else _line_and_column(text, position)
        return InputError(Problem(f"not valid JSON: {what}{where}", "mend the file", str(path)))

    if not text.strip():
        raise problem("the file is empty")
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_finite_integer,
        )
    except json.JSONDecodeError as error:
        raise problem(error.msg, error.pos) from None
    except RecursionError:
        raise problem("it is nested too deeply") from None
    except _NotStrict:
        raise problem(*_first_not_strict(text)) from None


def read_record(path: Path, kind: type[Record], todo: str) -> Record:
    """Read JSON that this program wrote, as the pydantic model or dataclass that describes it.

    Raises
    ------
    InputError
        With ``todo``, if the file is missing, not JSON, or holds anything else.
    """
    try:
        return TypeAdapter(kind).validate_python(read_json(path))
    except ValidationError as error:
        what = f"is not a {path.name} of this program ({error.error_count()} values differ)"
        raise InputError(Problem(what, todo, str(path))) from None


class _NotStrict(Exception):
    """Python's parser takes it, JSON does not."""


def _refuse(token: str) -> float:
    raise _NotStrict


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise _NotStrict
    return result


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise _NotStrict
    return value


def _finite_integer(token: str) -> int:
    # Every number here ends as a float64, which holds less than 310 digits.
    if len(token) > 310 or not math.isfinite(float(token)):
        raise _NotStrict
    return int(token)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)|-?\d[\d.eE+-]*|[{}]|:', re.DOTALL)


def _first_not_strict(text: str) -> tuple[str, int]:
    """Find what the hooks of the json module refused: they are not told where they are."""
    keys: list[set[str]] = []
    last = None
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word == "{":
            keys.append(set())
        elif word == "}":
            keys.pop()
        elif word == ":" and last:
            key = json.loads(last.group(), strict=False)
            if key in keys[-1]:
                return f"the key {key!r} stands twice in one object", last.start()
            keys[-1].add(key)
        elif word.lstrip("-") in ("NaN", "Infinity"):
            return f"{word} is no number of JSON", token.start()
        elif word[0] != '"' and not math.isfinite(float(word)):
            return f"the number {shorten(word)} overflows", token.start()
        last = token
    raise AssertionError("a token that was refused is not found again")


def shorten(text: str, length: int = 60) -> str:
    """Cut the middle out of a long text, to show it in a sentence."""
    half = (length - 3) // 2
    return text if len(text) <= length else f"{text[:half]}...{text[-half:]}"


def _line_and_column(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f" at line {line}, column {position - text.rfind(chr(10), 0, position)}"


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
