"""The layout of a layered picture: an order with few crossings, then positions near the linked boxes.

It knows columns, groups and links by key, and nothing of capabilities, colours or text. It is deterministic.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

GAP = 8.0  # between two boxes
GROUP_GAP = 16.0  # between two groups
_MOST_AIR = 26.0  # added between two boxes of a column that is not full
_SWEEPS = 6

Links = Iterable[tuple[str, str]]
Near = Mapping[str, list[str]]


class Item(Struct, frozen=True):
    """A box: its key, and how tall it is."""

    key: str
    height: float


class Group(Struct, frozen=True):
    """Boxes that stay together under one heading; a pinned group stays where it was put."""

    name: str
    items: tuple[Item, ...]
    heading: float = 0.0
    pinned: bool = False


class Placement(Struct, frozen=True):
    """The top of every box and, by column and group, of every heading; and the total height."""

    tops: Mapping[str, float]
    headings: Mapping[tuple[int, str], float]
    height: float

    def moved(self, down: float) -> "Placement":
        """The same positions, further down."""
        tops = {key: top + down for key, top in self.tops.items()}
        return Placement(tops, {key: top + down for key, top in self.headings.items()}, self.height + down)


Column = tuple[Group, ...]


def place(columns: Iterable[Column], links: Links) -> Placement:
    """Find a position for every box; links go from a column to the next one."""
    right: dict[str, list[str]] = {}
    left: dict[str, list[str]] = {}
    for source, target in dict.fromkeys(links):
        right.setdefault(source, []).append(target)
        left.setdefault(target, []).append(source)
    ordered = _ordered(tuple(columns), left, right)
    height = max(map(_natural_height, ordered), default=0.0)
    tallest = max(range(len(ordered)), key=lambda index: _natural_height(ordered[index]), default=0)
    centres: dict[str, float] = {}
    headings: dict[tuple[int, str], float] = {}
    tops: dict[str, float] = {}
    # From the tallest column outwards: it has no freedom, and the other columns move towards their links.
    for index in (*range(tallest, -1, -1), *range(tallest + 1, len(ordered))):
        near = right if index < tallest else left
        found = _settled(ordered[index], near, centres, height)
        for group in ordered[index]:
            for item in group.items:
                tops[item.key] = found[item.key]
                centres[item.key] = found[item.key] + item.height / 2
            if group.items and group.heading:
                headings[index, group.name] = found[group.items[0].key] - group.heading
    return Placement(tops, headings, height)


def _ordered(columns: tuple[Column, ...], left: Near, right: Near) -> tuple[Column, ...]:
    """The columns in an order with few crossings: each box near the mean of its neighbours, sweep after sweep."""
    best, fewest = columns, _crossings(columns, right)
    for _ in range(_SWEEPS):
        for near, path in ((left, range(1, len(columns))), (right, range(len(columns) - 2, -1, -1))):
            for index in path:
                neighbours = columns[index - 1 if near is left else index + 1]
                sorted_column = _sorted(columns[index], near, _ranks(neighbours))
                columns = (*columns[:index], sorted_column, *columns[index + 1 :])
        crossings = _crossings(columns, right)
        if crossings < fewest:
            best, fewest = columns, crossings
    return best


def _sorted(column: Column, near: Near, ranks: Mapping[str, float]) -> Column:
    own = _ranks(column)

    def weight(key: str) -> float:
        held = [ranks[other] for other in near.get(key, ()) if other in ranks]
        return sum(held) / len(held) if held else own[key]

    def mean(group: Group) -> float:
        return sum(weight(item.key) for item in group.items) / (len(group.items) or 1)

    groups = [
        replace(group, items=tuple(sorted(group.items, key=lambda item: (round(weight(item.key), 6), item.key))))
        for group in column
    ]
    free = iter(sorted((group for group in groups if not group.pinned), key=lambda group: (mean(group), group.name)))
    return tuple(group if group.pinned else next(free) for group in groups)


def _ranks(column: Column) -> dict[str, float]:
    keys = [item.key for group in column for item in group.items]
    return {key: (place + 0.5) / len(keys) for place, key in enumerate(keys)}


def _crossings(columns: tuple[Column, ...], right: Near) -> int:
    crossings = 0
    for one, other in pairwise(columns):
        ranks = _ranks(other)
        seen: list[float] = []
        for key in _ranks(one):
            ends = sorted(ranks[target] for target in right.get(key, ()) if target in ranks)
            crossings += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return crossings


def _offsets(column: Column, air: float = 0.0) -> tuple[dict[str, float], float]:
    """How far down each box is in a column without gaps, and the height of that column."""
    offsets: dict[str, float] = {}
    down = 0.0
    for group in column:
        if not group.items:
            continue
        down += (GROUP_GAP + air if offsets else 0.0) + group.heading
        for place, item in enumerate(group.items):
            down += GAP + air if place else 0.0
            offsets[item.key] = down
            down += item.height
    return offsets, down


def _natural_height(column: Column) -> float:
    return _offsets(column)[1]


def _settled(column: Column, near: Near, centres: Mapping[str, float], height: float) -> dict[str, float]:
    """The tops of a column's boxes: in order, without overlap, as near to their neighbours as that allows."""
    natural = _natural_height(column)
    boxes = sum(len(group.items) for group in column)
    # A short column next to a tall one is spread out, so that its links are less steep.
    air = min(_MOST_AIR, max(0.0, 0.8 * height - natural) / max(boxes, 1))
    offsets, natural = _offsets(column, air)
    wishes: list[float | None] = []
    for group in column:
        for item in group.items:
            held = [centres[other] for other in near.get(item.key, ()) if other in centres]
            wishes.append(sum(held) / len(held) - item.height / 2 - offsets[item.key] if held else None)
    room = height - natural
    shifts = _rising([room / 2 if wish is None else wish for wish in _filled(wishes)])
    return {
        key: offset + min(max(shift, 0.0), room) for (key, offset), shift in zip(offsets.items(), shifts, strict=True)
    }


def _filled(wishes: list[float | None]) -> list[float | None]:
    """A box without links stays with the box above it, or else with the first one that has links."""
    last = next((wish for wish in wishes if wish is not None), None)
    filled = []
    for wish in wishes:
        last = last if wish is None else wish
        filled.append(last)
    return filled


def _rising(wishes: list[float]) -> list[float]:
    """The nearest non-decreasing values (least squares: neighbours that would cross share their mean)."""
    runs: list[tuple[float, int]] = []
    for wish in wishes:
        mean, count = wish, 1
        while runs and runs[-1][0] > mean:
            before, many = runs.pop()
            mean, count = (mean * count + before * many) / (count + many), count + many
        runs.append((mean, count))
    return [mean for mean, count in runs for _ in range(count)]
