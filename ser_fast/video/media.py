"""What may be opened at all: regular files in a known container, within caps. FFmpeg follows playlists and scripts whatever a
file is called, so the container is checked before and while it is opened."""

from __future__ import annotations

import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ser_fast.errors import DecodeError, RefusedMedia

DEMUXERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mjpeg"
"""FFmpeg's names of the containers that are opened."""

OPEN_OPTIONS = {"format_whitelist": DEMUXERS, "protocol_whitelist": "file"}

_SCRIPT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:#EXTM3U|(?:#[^\n]*\n\s*)*(?:ffconcat\b|file\s+\S|\[playlist\]|v=0\r?\no=|<\?xml|<MPD\b|<ASX\b|<smil\b))",
    re.IGNORECASE,
)
_EBML = b"\x1aE\xdf\xa3"
_BOX_TYPES = {
    b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"uuid", b"sidx", b"mfra", b"emsg", b"prft"
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Caps that are checked before anything is decoded."""

    max_pixels: int = 8192 * 8192
    """Height times width of a frame."""
    max_duration_s: float = 24 * 3600.0
    max_frames: int = 4_000_000
    """Frames in the file."""
    max_bytes: int = 8 << 30
    """Of the frames asked for, decoded."""


def check_file(path: str) -> bytes:
    """Checks that a path is a regular file and no playlist or script; returns its first bytes.

    Raises:
        DecodeError: no such file, not a regular one, empty or not readable.
        RefusedMedia: a playlist or a script.
    """
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise DecodeError(path, "open", "not a regular file")
        with open(path, "rb") as file:
            head = file.read(1024)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DecodeError(path, "open", reason) from error
    if not head:
        raise DecodeError(path, "open", "the file is empty")
    if _SCRIPT.match(head):
        raise RefusedMedia(path, "open", "a playlist or a script, not a media file")
    return head


def is_known_container(head: bytes) -> bool:
    """Whether a file begins like one of the containers that are opened: what is wrong with it is then damage."""
    return (
        head[4:8] in _BOX_TYPES
        or head.startswith(_EBML)
        or (head.startswith(b"RIFF") and head[8:12] == b"AVI ")
        or _ts_packet_size(head) is not None
    )


def cut_off(path: str) -> Literal["no", "yes", "at any length"]:
    """Whether a file ends inside a box (mp4), a chunk (avi), a segment (matroska) or a packet (mpegts).

    "at any length": it does, and its kind writes no length beforehand (mpegts, mp4 in fragments).
    """
    length = Path(path).stat().st_size
    is_fragmented = False
    with open(path, "rb") as file:
        head = file.read(1024)
        packet_size = _ts_packet_size(head)
        if packet_size is not None:
            return "at any length" if length % packet_size else "no"
        size_of = _box_size
        if head.startswith(b"RIFF"):
            size_of = _riff_size
        elif head.startswith(_EBML):
            size_of = _element_size
        begin = 0
        while begin + 8 <= length:
            file.seek(begin)
            header = file.read(16)
            size = size_of(header)
            if size is None:
                return "no"
            is_fragmented = is_fragmented or header[4:8] == b"moof"
            begin += size
    if begin <= length:
        return "no"
    return "at any length" if is_fragmented else "yes"


def _element_size(header: bytes) -> int | None:
    """Bytes of the EBML header or the segment that begins like this; None where none does or its size is not given."""
    if not header.startswith((_EBML, b"\x18\x53\x80\x67")) or len(header) < 12 or not header[4]:
        return None
    length = 9 - header[4].bit_length()
    size = int.from_bytes(header[4 : 4 + length]) - (1 << 7 * length)
    return 4 + length + size if size != (1 << 7 * length) - 1 else None


def _riff_size(header: bytes) -> int | None:
    """Bytes of the RIFF chunk that begins like this; None where none does."""
    kind, size = struct.unpack("<4sI", header[:8])
    return 8 + size if kind == b"RIFF" else None


def _box_size(header: bytes) -> int | None:
    """Bytes of the mp4 box that begins like this; None where none does or it goes on to the end of the file."""
    size, kind = struct.unpack(">I4s", header[:8])
    if size == 1:
        size = int.from_bytes(header[8:])
    return size if kind in _BOX_TYPES and size >= 8 else None


def _ts_packet_size(head: bytes) -> int | None:
    for size, sync in ((188, 0), (204, 0), (192, 4)):
        if len(head) > size + sync and head[sync] == head[size + sync] == 0x47:
            return size
    return None
