"""The grammar of evidence claims. docs/grammar.md tells it with examples; csrc/claims scans it.

    response := ... "<think>" reasoning "</think>" ... "<answer>" answer "</answer>" ...
    claim    := "<obj>" name "</obj>" box+ "at<t>" seconds "</t>s"        within the reasoning
    box      := "<box>" "[" x1 "," y1 "," x2 "," y2 "]" "</box>"

The tags are those of Open-o3-Video (arXiv 2510.20579) and its successors; the strict reading is ours.
"""

from __future__ import annotations

MAX_NAME_LENGTH = 64
"""Characters of an object's name."""

MIN_SIDE_PX = 4.0
"""The hull of a claim's boxes is at least so wide and high, in pixels of the frame: less cannot be judged."""
