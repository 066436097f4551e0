"""Arrays of files, mapped into memory: all processes of a machine share their pages."""

import ctypes
import mmap
import os
import weakref
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def map_array(path: Path) -> np.ndarray:
    """Map a ``.npy`` file into memory, read-only.

    A `numpy.memmap` keeps a descriptor of its file open, and a process may have about 1,000 of
    them: a cohort has more files. Python's own mmap can do without from 3.13 on (``trackfd``).

    Raises
    ------
    OSError, ValueError, EOFError
        If the file cannot be read, holds objects, or ends before its array does.
    """
    with path.open("rb") as stream:
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, column_major, dtype = read_header(stream)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        start, size = stream.tell(), os.fstat(stream.fileno()).st_size
        count = int(np.prod(shape))
        if size < start + count * dtype.itemsize:
            raise ValueError(f"it ends at byte {size}, before its array does")
        data = np.frombuffer(_map_file(stream.fileno(), size), dtype, count, start)
    return data.reshape(shape, order="F" if column_major else "C")


def _map_file(descriptor: int, size: int) -> memoryview:
    """Map a whole file that is not empty; it is unmapped when nothing refers to the view."""
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, _FAILED):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_char * size).from_address(address)
    # At exit other threads may still read it, and the system unmaps everything anyway.
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False
    return memoryview(memory).toreadonly()
