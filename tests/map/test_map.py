"""The map is a valid SVG that shows everything on a surface, covers nothing, and contains no script."""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from itertools import combinations, pairwise
from random import Random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.messages import message
from core.manifests import HERE, admission, layer, manifest, manifests, tool
from licet.core.algebra.scope import visible
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Budget
from licet.core.review.surface import surface
from licet.map.draw import GAP, Column, Group, Item, element, place, safe, shortened, svg_map, width
from licet.map.model import style_sheet

SVG = "{http://www.w3.org/2000/svg}"
LONG_HOST = "a-service-with-a-name.in-some-region.of-a-tenant.of-a-very-long-customer-name.example.com"


def small() -> Manifest:
    return manifest(
        tool("fetch", "network:https:api.x.test", f"network:https:{LONG_HOST}", "secret:read:KEY"),
        tool("peek", "fs:read:/srv"),
        tool("save", "fs:*:/srv", effect="write_limited"),
        tool("wipe", "fs:*:/srv", effect="destructive", sandbox="native"),
        tool("elsewhere", "fs:read:/srv"),
        allows=["network:https:api.x.test", f"network:https:{LONG_HOST}", "secret:read:KEY", "fs:*:/srv"],
        denies=["fs:*:/srv/key", "fs:write:/srv/agent.yaml"],
        admissions={
            "fetch": (admission(bundle="lookup"),),
            "peek": (admission(bundle="lookup"),),
            "save": (admission(bundle="desk", approval="session"),),
            "wipe": (admission(),),
            "guess": (admission(bundle="desk", levels=(("restricted", HERE),)),),
        },
        max_effect="write_limited",
        budget=Budget(9, Decimal("2.50")),
        servers={"files": {"command": ["serve", "."], "grants": ["fs:read:/srv/www"], "secrets": {"T": "a/token"}}},
    )


def wide(tools: int, hosts: int, each: int) -> Manifest:
    names = [f"h{number}.x.test" for number in range(hosts)]
    specs = [
        tool(f"tool{number:02}", *(f"network:*:{names[(number * each + step) % hosts]}" for step in range(each)))
        for number in range(tools)
    ]
    admissions = {spec.name: (admission(bundle=f"bundle{place // 9}"),) for place, spec in enumerate(specs)}
    return manifest(*specs, allows=[f"network:*:{name}" for name in names], admissions=admissions)


def hostile() -> Manifest:
    name = "</text><script>alert(1)</script>&amp;\u202eevil\x00]]>"
    return manifest(
        tool(name, "fs:read:/a/<b>&\"'"),
        allows=["fs:read:/a/<b>&\"'"],
        admissions={name: (admission(bundle='"><img src=x onerror=alert(1)>'),)},
        agent="<svg onload=alert(1)>",
        version="</style><script>",
    )


def crowded(tools: int = 130, hosts: int = 250, denies: int = 90, bundles: int = 80) -> Manifest:
    """More of everything than one picture can show; each tool reaches each host, and the last one writes."""
    specs = [tool(f"tool{number:03}", "network:*:*") for number in range(tools - 1)]
    specs.append(tool("zealous", "network:*:*", "network:https:z.x.test", effect="write_limited"))
    allows = [*(f"network:https:get@h{number:03}.x.test" for number in range(hosts - 1)), "network:https:z.x.test"]
    return manifest(
        *specs,
        allows=allows,
        denies=[*(f"network:*:*:{port}" for port in range(1, 21)), *(f"env:*:E{one:02}" for one in range(denies - 20))],
        admissions={spec.name: (admission(bundle=f"bundle{place % bundles:02}"),) for place, spec in enumerate(specs)},
        max_effect="write_limited",
    )


WORLDS = {
    "nothing": manifest(),
    "a small agent": small(),
    "hostile names": hostile(),
    "60 tools and 200 hosts": wide(60, 200, 12),
    "more tools than hosts": wide(30, 3, 2),
}
every_world = pytest.mark.parametrize("found", WORLDS.values(), ids=list(WORLDS))
CROWDED = crowded()
too_much_or_not = pytest.mark.parametrize("found", [*WORLDS.values(), CROWDED], ids=[*WORLDS, "too much to draw"])


@cache
def _crowded_map() -> str:
    return svg_map(surface(CROWDED))


def picture(found: Manifest) -> str:
    """The map of a manifest; the largest one is drawn once for all tests."""
    return _crowded_map() if found is CROWDED else svg_map(surface(found))


def drawn(found: Manifest) -> ElementTree.Element:
    return ElementTree.fromstring(picture(found))


def tips(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}title")]


def texts(root: ElementTree.Element, look: str = "") -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text") if look in one.get("class", "").split() or not look]


def boxes(root: ElementTree.Element) -> Iterator[tuple[float, float, float, float]]:
    for one in root.iter(f"{SVG}rect"):
        if one.get("class") == "box":
            x, y, across, down = (float(one.get(key, "0")) for key in ("x", "y", "width", "height"))
            yield x, y, x + across, y + down


def card(root: ElementTree.Element, name: str) -> ElementTree.Element:
    """The group of the box that a tooltip starts with a name."""
    for group in root.iter(f"{SVG}g"):
        for inner in group.findall(f"{SVG}g"):
            if (inner.findtext(f"{SVG}title") or "").split("\n")[0] == name:
                return group
    raise AssertionError(f"no card for {name}")


# The document --------------------------------------------------------------------------------------------------------


@too_much_or_not
@pytest.mark.sampled(2)
def test_the_picture_is_one_svg_that_says_what_it_is(found: Manifest) -> None:
    root = drawn(found)
    assert (root.tag, root.get("role")) == (f"{SVG}svg", "img")
    assert [child.tag for child in root[:3]] == [f"{SVG}title", f"{SVG}desc", f"{SVG}style"]
    assert root[0].text == root.get("aria-label") == f"What {visible(found.agent)} can reach"
    assert root[1].text


@every_world
def test_the_picture_runs_nothing_and_fetches_nothing(found: Manifest) -> None:
    root = drawn(found)
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        "svg", "title", "desc", "style", "rect", "text", "g", "path",
    }  # fmt: skip
    attributes = {key for one in root.iter() for key in one.attrib}
    assert not [key for key in attributes if key.startswith("on") or "href" in key]
    style = root.findtext(f"{SVG}style") or ""
    assert "url(" not in style
    assert "@import" not in style
    assert picture(found).count("http") - "".join(root.itertext()).count("http") == 1, "the namespace alone"


@too_much_or_not
@pytest.mark.sampled(2)
def test_no_two_boxes_overlap_and_all_are_inside(found: Manifest) -> None:
    root = drawn(found)
    across, down = (float(root.get(key, "0")) for key in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {across:g} {down:g}"
    found_boxes = list(boxes(root))
    assert all(x >= 0 and y >= 0 and right <= across and bottom <= down for x, y, right, bottom in found_boxes)
    for one, other in combinations(found_boxes, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (one, other)


@every_world
def test_everything_on_the_surface_is_in_the_picture(found: Manifest) -> None:
    root = drawn(found)
    told = "\n".join(tips(root))
    shown = surface(found)
    assert visible(shown.agent) in told
    for one in (*shown.tools, *filter(None, (shown.commands,))):
        assert visible(one.name) in told
        assert all(visible(bundle) in told for bundle in one.bundles)
        for entry in one.entries:
            assert visible(f"{one.name} → {entry}") in told
    assert all(visible(str(deny.rule)) in told for deny in shown.denies)
    assert all(visible(name) in told for name in shown.unadmitted)


@given(manifests)
def test_any_manifest_gives_a_sound_picture_of_all_its_tools(found: Manifest) -> None:
    told = "\n".join(tips(drawn(found)))
    shown = surface(found)
    for one in (*shown.tools, *filter(None, (shown.commands,))):
        assert one.name in told
        assert all(str(entry) in told for entry in one.entries)


def test_any_command_is_a_box_of_its_own_where_a_binary_is_allowed() -> None:
    root = drawn(manifest(allows=["process:exec:wc", "fs:read:/srv"]))
    assert "any command" in texts(root, "name")
    assert message("map.licet_run_fs_read_srv") in tips(root)
    assert "any command" not in texts(drawn(manifest(allows=["fs:read:/srv"])), "name")


def test_the_same_surface_gives_the_same_picture_in_whatever_order_it_was_read() -> None:
    one = small()
    other = manifest(
        *reversed(list(one.tools.values())),
        layers=one.layers,
        admissions=dict(reversed(list(one.admissions.items()))),
        max_effect="write_limited",
        budget=one.budget,
        servers=one.servers,
    )
    assert svg_map(surface(one)) == svg_map(surface(other))


def test_names_from_files_stay_text() -> None:
    shown = texts(drawn(hostile()), "name")
    assert any("\\u202e" in text and "\\u0000" in text for text in tips(drawn(hostile())))
    assert not any(re.search("[\u202e\x00]", text) for text in shown)


# What is drawn -------------------------------------------------------------------------------------------------------


def test_a_target_of_several_tools_is_one_box() -> None:
    assert sum(tip.split("\n")[0] == "/srv" for tip in tips(drawn(small()))) == 1
    root = drawn(wide(30, 3, 2))
    assert texts(root, "head") == ["Hosts · 3"]


def test_too_many_boxes_are_drawn_as_one_box_with_a_count() -> None:
    root = ElementTree.fromstring(_crowded_map())
    assert sorted(text for text in texts(root) if text.startswith("… and")) == [
        "… and 20 more",  # bundles
        "… and 30 more",  # tools, and denies
        "… and 30 more",
        "… and 50 more",  # hosts
    ]
    assert texts(root, "head") == ["Hosts · 250", message("map.denied_every_tool")]
    assert "130 tools" in (root.findtext(f"{SVG}desc") or "")
    assert "250 hosts" in (root.findtext(f"{SVG}desc") or "")


def test_written_targets_are_drawn_before_read_only_ones() -> None:
    root = ElementTree.fromstring(_crowded_map())
    assert "z.x.test" in texts(root, "target")
    assert "zealous" in texts(root, "name")
    assert "tool128" not in texts(root, "name")


MORE = [{"denies": 300}, {"tools": 60}, {"hosts": 100}, {"tools": 60, "bundles": 60}]


@pytest.mark.parametrize("more", MORE, ids=str)
def test_a_picture_does_not_grow_with_what_it_cannot_show(
    more: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, most in {"BUNDLES": 6, "TOOLS": 10, "TARGETS": 20, "DENIED": 6, "TIPS": 4}.items():
        monkeypatch.setattr(f"licet.map.cards.MOST_{limit}", most)
    monkeypatch.setattr("licet.map.model.MOST_TIPS", 4)
    enough = {"tools": 14, "hosts": 26, "denies": 30, "bundles": 8}
    sizes = [len(svg_map(surface(crowded(**found)))) for found in (enough, enough | more)]
    assert sizes[1] < 1.05 * sizes[0]


def test_a_tooltip_does_not_grow_with_what_it_cannot_show() -> None:
    denies = [f"network:*:*:{port}" for port in range(1, 4001)]
    root = drawn(manifest(tool("t", "network:*:*"), allows=["network:*:*"], denies=denies))
    assert max(map(len, tips(root))) < 1000
    assert "and 3998 more exceptions" in texts(root)


def test_the_other_ways_to_see_a_surface_stay_complete() -> None:
    document = surface(crowded()).document()
    assert len(document["tools"]) == 130
    assert len(document["denies"]) == 90
    assert {len(one["reach"]["hosts"]) for one in document["tools"]} == {250}


def test_each_tool_shows_its_class_level_and_when_it_asks() -> None:
    root = drawn(small())
    for name, accent, level, line in (
        ("fetch", "c-read_only", "restricted", "read_only"),
        ("save", "c-write_limited", "restricted", "write_limited · asks per session"),
    ):
        group = card(root, name)
        assert [one.get("class") for one in group.iter(f"{SVG}rect")] == ["box", accent, "pill"]
        assert texts(group) == [level, name, line]


def test_a_blocked_tool_is_grey_reaches_nothing_and_says_why() -> None:
    group = card(drawn(small()), "wipe")
    assert "off" in group.get("class", "").split()
    assert list(group.iter(f"{SVG}path")) == []
    assert texts(group)[-1] == "cannot be called"
    assert message("map.cannot_be_called_wipe_destructive") in tips(group)[0]


def test_an_undeclared_tool_is_dashed_and_its_links_are_guesses() -> None:
    group = card(drawn(small()), "guess")
    assert "loose" in group.get("class", "").split()
    links = [one.get("class", "").split() for one in group.iter(f"{SVG}path")]
    assert links
    assert all("guess" in look for look in links)


def test_links_that_write_are_thicker() -> None:
    root = drawn(small())
    looks = {name: [one.get("class", "") for one in card(root, name).iter(f"{SVG}path")] for name in ("peek", "save")}
    assert looks == {"peek": ["link reach l-paths"], "save": [message("map.link_reach_paths_writes")]}


@pytest.mark.parametrize(("action", "look"), [("read", "link reach l-storage"), ("*", "link reach l-storage writes")])
@pytest.mark.parametrize("store", ["session", "tool-private", "personality"])
def test_a_store_that_is_written_to_has_a_thick_link_too(store: str, action: str, look: str) -> None:
    rule = f"storage:{action}:{store}"
    root = drawn(manifest(tool("keep", rule, effect="write_limited"), allows=[rule], max_effect="write_limited"))
    assert [one.get("class") for one in card(root, "keep").iter(f"{SVG}path")] == [look]


def test_targets_that_no_tool_reaches_are_struck_through_and_partial_denies_noted() -> None:
    group = card(drawn(small()), "/srv")
    assert texts(group, "struck") == ["/srv/key"]
    assert "no write: /srv/agent.yaml" in texts(group)
    assert "read, write" in texts(group)


def test_targets_denied_to_every_tool_are_struck_through_in_their_own_group() -> None:
    root = drawn(small())
    assert message("map.denied_every_tool_2") in texts(root, "head")
    denied = [group for group in root.iter(f"{SVG}g") if group.get("class") == "denied"]
    assert [texts(group, "struck") for group in denied] == [["/srv/key"], ["/srv/agent.yaml"]]


def test_policy_files_are_one_line_among_the_denied_targets() -> None:
    own = [f"fs:{action}:/srv/file{number}.py" for number in range(70) for action in ("write", "delete")]
    layers = (layer(["fs:read:/srv"], ["fs:*:/srv/key"]), layer(denies=own, kind="protected paths"))
    root = drawn(manifest(tool("peek", "fs:read:/srv"), layers=layers))
    denied = [group for group in root.iter(f"{SVG}g") if group.get("class") == "denied"]
    assert message("map.denied_every_tool_2") in texts(root, "head")
    assert [texts(group, "struck") for group in denied] == [["/srv/key"], [message("map.policy_files_code_tools")]]
    assert "write, delete" in texts(denied[1])
    (tip,) = tips(denied[1])
    assert "/srv/file0.py" not in tip  # a path of this machine, in a picture that is shared
    assert "licet surface --json" in tip


def test_texts_and_tooltips_have_names_for_directories() -> None:
    root = ElementTree.fromstring(svg_map(surface(small()), lambda text: text.replace("/srv", "${workdir}")))
    told = [*texts(root), *tips(root)]
    assert "${workdir}" in texts(root, "target")
    assert "${workdir}/key" in texts(root, "struck")
    assert message("map.peek_fs_read_except_key") in told
    assert not any("/srv" in text for text in told)


def test_many_exceptions_are_counted_and_listed_in_the_tooltip() -> None:
    denies = [f"fs:read:/srv/d{number}" for number in range(9)]
    group = card(drawn(manifest(tool("peek", "fs:read:/srv"), allows=["fs:read:/srv"], denies=denies)), "/srv")
    assert texts(group)[-1] == "and 7 more exceptions"
    assert "/srv/d8" in tips(group)[0]


def test_a_long_name_is_shortened_in_the_middle_and_complete_in_the_tooltip() -> None:
    group = card(drawn(small()), LONG_HOST)
    (shown,) = texts(group, "target")
    head, tail = shown.split("…")
    assert head
    assert len(tail) > len(head)
    assert LONG_HOST.startswith(head)
    assert LONG_HOST.endswith(tail)


def test_a_server_is_shown_with_what_it_holds() -> None:
    root = drawn(small())
    assert "server · serve ." in texts(card(root, "files"))
    assert "files → fs:read:/srv/www" in tips(root)
    assert "files → secret:read:a/token" in tips(root)


def test_the_legend_names_only_what_is_there() -> None:
    assert texts(drawn(manifest()), "muted") == [
        "0 tools · reaching nothing · " + manifest().digest[:19],
        "at most read_only",
        message("map.writes_ask_per_session"),
        "no budget",
    ]
    shown = texts(drawn(small()))
    assert {"read_only", "write_limited", "hosts", "paths", "secrets", "reads", "writes", "could reach"} <= set(shown)
    assert not {"full", "environment", "connectors"} & set(shown)


def test_every_colour_of_the_day_has_one_of_the_night() -> None:
    day, night = style_sheet(10).split("@media (prefers-color-scheme: dark) {")

    def coloured(rules: str) -> dict[str, list[str]]:
        found = re.findall(r"^(\.licet-map[^{]*) \{([^}]*)\}", rules, re.MULTILINE)
        return {selector: re.findall(r"#[0-9a-f]{6}", held) for selector, held in found if "#" in held}

    assert coloured(day).keys() == coloured(night).keys()
    assert all(colours != coloured(night)[selector] for selector, colours in coloured(day).items())
    assert not re.search("[A-Z]{3}", day + night), "a word that was not replaced by a colour"


def test_the_more_links_the_fainter() -> None:
    faint = [
        float(re.findall(r"\.reach \{ stroke-opacity: ([0-9.]+)", style_sheet(links))[0]) for links in (0, 300, 90000)
    ]
    assert faint == sorted(faint, reverse=True)
    assert 0 < faint[-1] < faint[0] <= 1


# Layout and text -----------------------------------------------------------------------------------------------------

_heights = st.floats(10, 60)
_groups = st.lists(st.lists(_heights, max_size=5), min_size=1, max_size=3)


def _column(index: int, groups: list[list[float]]) -> Column:
    return tuple(
        Group(f"g{number}", tuple(Item(f"{index}.{number}.{nth}", tall) for nth, tall in enumerate(heights)), 20.0)
        for number, heights in enumerate(groups)
    )


@given(st.lists(_groups, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_boxes_of_a_column_keep_their_distance_and_groups_stay_together(
    shape: list[list[list[float]]], random: Random
) -> None:
    columns = [_column(index, groups) for index, groups in enumerate(shape)]
    keys = [[item.key for group in column for item in group.items] for column in columns]
    links = [(one, two) for left, right in pairwise(keys) for one in left for two in right if random.random() < 0.4]
    placed = place(columns, links)
    for column in columns:
        items = sorted((item for group in column for item in group.items), key=lambda item: placed.tops[item.key])
        for one, other in pairwise(items):
            assert placed.tops[one.key] + one.height + GAP <= placed.tops[other.key] + 1e-6
        assert all(-1e-6 <= placed.tops[item.key] <= placed.height - item.height + 1e-6 for item in items)
        owners = [item.key.rpartition(".")[0] for item in items]
        assert len(list(dict.fromkeys(owners))) == sum(one != other for one, other in pairwise(["", *owners]))


def test_boxes_are_ordered_so_that_links_do_not_cross() -> None:
    left = (Group("", tuple(Item(f"a{number}", 20) for number in range(4))),)
    right = (Group("", tuple(Item(f"b{number}", 20) for number in range(4))),)
    placed = place([left, right], [(f"a{number}", f"b{3 - number}") for number in range(4)])
    ends = sorted((placed.tops[f"a{number}"], placed.tops[f"b{3 - number}"]) for number in range(4))
    assert [end for _, end in ends] == sorted(end for _, end in ends)


def test_a_pinned_group_stays_where_it_was_put() -> None:
    left = (Group("", (Item("a", 20), Item("b", 20))),)
    right = (Group("one", (Item("x", 20),), pinned=True), Group("two", (Item("y", 20),), pinned=True))
    placed = place([left, right], [("a", "y"), ("b", "x")])
    assert placed.tops["x"] < placed.tops["y"]


def test_a_single_box_is_centred_on_its_links() -> None:
    right = (Group("", tuple(Item(f"b{number}", 20) for number in range(5))),)
    placed = place([(Group("", (Item("a", 30),)),), right], [("a", f"b{number}") for number in (1, 2, 3)])
    assert placed.tops["a"] + 15 == pytest.approx(placed.tops["b2"] + 10)


@given(st.text(max_size=60), st.floats(20, 300))
def test_shortened_text_fits_and_is_the_text_itself_if_that_fits(text: str, room: float) -> None:
    short = shortened(text, room, 12)
    assert width(short, 12) <= room
    assert (short == visible(text)) is (width(text, 12) <= room)


@given(st.text())
def test_any_text_survives_as_xml(text: str) -> None:
    assert ElementTree.fromstring(f"<a>{safe(text)}</a>").text == (visible(text) or None)
    assert ElementTree.fromstring(element("a", look=text)).get("class") == visible(text)
