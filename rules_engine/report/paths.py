"""Paths of drawings, in their own units."""

from collections.abc import Sequence
from fractions import Fraction

WIDTH = 1000
"""Width of a drawing, from the beginning to the end."""


def area(means: Sequence[Fraction], capacity: int, height: int) -> str:
    """Return the path of an area of steps of equal width; the capacity has the whole height."""
    points = [f"M0,{height}"]
    last = ""
    for number, mean in enumerate(means):
        level = height - float(min(mean / capacity, Fraction(1))) * height if capacity else height
        y = f"{level:.4g}"
        if y != last:
            points.append(f"H{number * WIDTH / len(means):.5g}V{y}")
        last = y
    return f"{''.join(points)}H{WIDTH}V{height}Z"
