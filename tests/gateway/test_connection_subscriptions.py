"""What a client is told about changes: what it subscribed to, and nothing else."""

from typing import Any

import pytest

from licet.gateway.limits import MOST_SUBSCRIPTIONS
from licet.mcp.jsonrpc import Notification

from .scenes import played, scene_of
from .scripted_backend import META, Scene
from .test_connection_lists import several

ID = f"{META}subscriptionId"


def told(scene: Scene, since: int = 0) -> list[Any]:
    return [(sent["method"].removeprefix("notifications/"), sent.get("params", {})) for sent in scene.sent[since:]]


def change_everything(scene: Scene) -> list[Any]:
    before = len(scene.sent)
    for kind in ("tools", "resources", "prompts"):
        scene.client.list_changed(kind)
    scene.client.resource_updated("a", "a://doc")
    scene.client.resource_updated("b", "b://doc")
    return told(scene, before)


LISTS: list[Any] = [("tools/list_changed", {}), ("resources/list_changed", {}), ("prompts/list_changed", {})]


def test_a_client_of_2025_is_told_of_lists_and_of_its_resources() -> None:
    async def steps(scene: Scene) -> None:
        assert change_everything(scene) == LISTS
        [answer] = await scene.request("resources/subscribe", {"uri": "a://doc"})
        assert answer["result"] == {}
        assert change_everything(scene) == [*LISTS, ("resources/updated", {"uri": "a://doc"})]
        await scene.request("resources/unsubscribe", {"uri": "a://doc"})
        assert change_everything(scene) == LISTS
        assert scene.backend.happened == [("subscribe", "a", "a://doc"), ("unsubscribe", "a", "a://doc")]

    scene_of(steps, "2025", several, "prefixed")


@played("2025")
async def test_nothing_is_told_before_the_client_is_initialized(scene: Scene) -> None:
    fresh = Scene(several(), "prefixed")
    fresh.client.list_changed("tools")
    assert fresh.sent == []


@pytest.mark.parametrize(
    ("server", "uri", "is_told"),
    [
        ("a", "a://doc", True),
        ("a", "a://doc/page", True),
        ("a", "a://document", False),
        ("b", "a://doc", False),  # another server says that it was updated
        ("a", "a://", False),
    ],
)
def test_an_update_is_told_for_the_resource_of_its_own_server(server: str, uri: str, is_told: bool) -> None:
    async def steps(scene: Scene) -> None:
        await scene.request("resources/subscribe", {"uri": "a://doc"})
        before = len(scene.sent)
        scene.client.resource_updated(server, uri)
        assert told(scene, before) == ([("resources/updated", {"uri": uri})] if is_told else [])

    scene_of(steps, "2025", several, "prefixed")


@pytest.mark.parametrize("uri", ["a://secret", "both://doc", "c://x", 7, None])
def test_a_refused_subscription_tells_nothing(uri: Any) -> None:
    async def steps(scene: Scene) -> None:
        [answer] = await scene.request("resources/subscribe", {"uri": uri})
        assert answer["error"]["code"] == -32602
        before = len(scene.sent)
        scene.client.resource_updated("a", str(uri))
        assert len(scene.sent) == before

    scene_of(steps, "2025", several, "prefixed")


def test_updates_are_left_out_while_the_transport_is_behind_and_changed_lists_are_not() -> None:
    async def steps(scene: Scene) -> None:
        await scene.request("resources/subscribe", {"uri": "a://doc"})
        scene.crowded = True
        assert change_everything(scene) == LISTS

    scene_of(steps, "2025", several, "prefixed")


def test_unsubscribing_from_something_else_changes_nothing() -> None:
    async def steps(scene: Scene) -> None:
        await scene.request("resources/subscribe", {"uri": "a://doc"})
        for uri in ("b://doc", 7, None):
            [answer] = await scene.request("resources/unsubscribe", {"uri": uri})
            assert answer["result"] == {}
        assert len(change_everything(scene)) == 4

    scene_of(steps, "2025", several, "prefixed")


def test_subscriptions_are_bounded() -> None:
    async def steps(scene: Scene) -> None:
        messages = [
            scene.message("resources/subscribe", {"uri": f"a://x{number}"}, number)
            for number in range(MOST_SUBSCRIPTIONS + 1)
        ]
        answers = await scene.tell(*messages)
        refused = [answer for answer in answers if "error" in answer]
        assert [answer["error"]["code"] for answer in refused] == [-32603]

    scene_of(steps, "2025", several, "prefixed")


ALL = {"toolsListChanged": True, "resourcesListChanged": True, "promptsListChanged": True}


@pytest.mark.parametrize(
    ("wanted", "honored", "changes"),
    [
        ({}, {}, []),
        ({"toolsListChanged": True}, {"toolsListChanged": True}, ["tools/list_changed"]),
        ({"toolsListChanged": False, "promptsListChanged": 1, "vendor": True}, {}, []),
        (ALL, ALL, ["tools/list_changed", "resources/list_changed", "prompts/list_changed"]),
        (
            {"resourceSubscriptions": ["a://doc", "a://secret", "both://doc", 7]},
            {"resourceSubscriptions": ["a://doc"]},
            ["resources/updated"],
        ),
        ({"resourceSubscriptions": []}, {}, []),
        ({"resourceSubscriptions": None}, {}, []),
    ],
)
def test_a_stream_of_2026_is_told_what_it_was_promised(wanted: Any, honored: Any, changes: list[str]) -> None:
    async def steps(scene: Scene) -> None:
        [promise] = await scene.request("subscriptions/listen", {"notifications": wanted}, "listen-1")
        assert promise["method"] == "notifications/subscriptions/acknowledged"
        assert promise["params"] == {"notifications": honored, "_meta": {ID: "listen-1"}}
        happened = change_everything(scene)
        assert [method for method, _ in happened] == changes
        assert all(params["_meta"] == {ID: "listen-1"} for _, params in happened)

    scene_of(steps, "2026", several, "prefixed")


@pytest.mark.parametrize("wanted", [None, [], "all", {"resourceSubscriptions": "a://doc"}])
def test_a_malformed_stream_is_refused(wanted: Any) -> None:
    async def steps(scene: Scene) -> None:
        [answer] = await scene.request("subscriptions/listen", {"notifications": wanted})
        assert answer["error"]["code"] == -32602
        assert change_everything(scene) == []

    scene_of(steps, "2026", several, "prefixed")


def test_a_client_of_2026_without_streams_is_told_nothing() -> None:
    async def steps(scene: Scene) -> None:
        assert change_everything(scene) == []

    scene_of(steps, "2026", several, "prefixed")


def test_a_cancelled_stream_ends_and_others_go_on() -> None:
    async def steps(scene: Scene) -> None:
        wanted = {"notifications": {"resourceSubscriptions": ["a://doc"], "toolsListChanged": True}}
        await scene.request("subscriptions/listen", wanted, 1)
        await scene.request("subscriptions/listen", wanted, 2)
        assert len(change_everything(scene)) == 4
        assert await scene.tell(Notification("notifications/cancelled", {"requestId": 1})) == []
        assert [params["_meta"][ID] for _, params in change_everything(scene)] == [2, 2]
        assert ("unsubscribe", "a", "a://doc") not in scene.backend.happened
        await scene.tell(Notification("notifications/cancelled", {"requestId": 2}))
        assert scene.backend.happened[-1] == ("unsubscribe", "a", "a://doc")
        assert change_everything(scene) == []

    scene_of(steps, "2026", several, "prefixed")


def test_what_happens_before_the_acknowledgement_is_told_after_it() -> None:
    async def steps(scene: Scene) -> None:
        slow = scene.backend.slow_subscriptions
        slow.clear()
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a://doc"]}
        assert await scene.request("subscriptions/listen", {"notifications": wanted}) == []
        assert change_everything(scene) == change_everything(scene) == []
        slow.set()
        await scene.settle()
        expected = ["subscriptions/acknowledged", "tools/list_changed", "resources/updated"]
        assert [method for method, _ in told(scene)] == expected

    scene_of(steps, "2026", several, "prefixed")


def test_a_flood_before_the_acknowledgement_is_cut_off() -> None:
    async def steps(scene: Scene) -> None:
        scene.backend.slow_subscriptions.clear()
        await scene.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a://doc"]}})
        for number in range(2 * MOST_SUBSCRIPTIONS):
            scene.client.resource_updated("a", f"a://doc/{number}")
        scene.backend.slow_subscriptions.set()
        await scene.settle()
        assert len(scene.sent) == 1 + MOST_SUBSCRIPTIONS

    scene_of(steps, "2026", several, "prefixed")
