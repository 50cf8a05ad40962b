"""Reading video files with PyAV on the CPU. The only package that knows PyAV.

Two passes: one over the packets, without decoding, says when each frame is shown (`index.py`); a second decodes what is asked
for, from the last key frame before it (`decoding.py`). Presentation times are the file's own, whatever its offset, frame rate
or frame order.
"""

from ser_fast.video.pyav.decoding import decode
from ser_fast.video.pyav.index import VideoIndex, read_index

NAME = "pyav-cpu"

__all__ = ["NAME", "VideoIndex", "decode", "read_index"]
