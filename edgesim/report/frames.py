"""Names of types of the libraries that reports build on.

pandas and Altair type their values by what they may hold at all; which columns a table has, and of
what type, they cannot know. So these are checked where a report is made, by its tests.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Frame: TypeAlias = Any
"""A pandas DataFrame or Series."""

Chart: TypeAlias = Any
"""A drawing or an encoding of Altair."""
