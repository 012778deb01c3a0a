"""Pushes of this process that an admission limit refused, by reason. Counted where they are refused."""

from __future__ import annotations

from collections import Counter

# rate: too many pushes in a window; full: the queue is too deep, or live tasks hold too many bytes
refusals: Counter[str] = Counter()
