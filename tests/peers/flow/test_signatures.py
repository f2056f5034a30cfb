"""The rule that writes a flow manifest from signatures, on signatures of no suite: each word beside a neighbour."""

from datetime import date, datetime
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, EmailStr

from .signatures import Signature, admissions_of, asked_by_of, flow_of, label_of, labels_of, role_of, words_of


class Colour(Enum):
    RED = "red"


class Owner(BaseModel, defer_build=True):
    name: str
    email: EmailStr


class Ticket(BaseModel, defer_build=True):  # pydantic checks addresses with a package that is not here
    id_: str
    title: str
    opened_by: Owner
    due: datetime
    votes: int
    watchers: list[EmailStr]
    links: list[str | int]
    state: Literal["open", "closed"]
    shared_with: dict[EmailStr, Literal["r", "rw"]]
    hours: dict[str, float]
    answers: dict[str, str]
    members: dict  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("tool", "name", "annotation", "role"),
    [
        ("send_letter", "recipients", list[str], "to"),
        ("send_letter", "body", str, "content"),
        ("send_letter", "copies", int, ""),
        ("send_letter", "colour", Colour, ""),
        ("send_letter", "colour", Literal["red"], ""),
        ("send_letter", "colour", str, "choice"),
        ("send_letter", "subject", str | None, "content"),
        ("send_letter", "enclosed_files", list[dict[str, Any]] | None, "ref"),
        ("create_letter", "filename", str, "content"),
        ("rename_letter", "filename", str, "ref"),
        ("close_ticket", "ticket_id", str, "ref"),
        ("close_ticket", "ticket_id", int, "ref"),
        ("close_ticket", "paid", int, ""),
        ("show_ticket", "ticket_id", str, ""),
        ("post_page", "page_url", str, "value"),
        ("fetch_page", "page_url", str, "link"),
        ("fetch_page", "page", str, ""),
        ("plan_trip", "start_day", str, "when"),
        ("plan_trip", "start_day", date, ""),
        ("plan_trip", "startTime", str | None, "when"),
        ("plan_trip", "starting_point", str, "choice"),
        ("change_password", "password", str, "value"),
        ("confirm", "otp", str, "code"),
        ("update_profile", "first_name", str, "value"),
        ("update_profile", "street", str | None, "value"),
        ("register_pet", "first_name", str, "content"),
        ("remove_member", "user", str, "ref"),
        ("invite_member", "user", str, "to"),
    ],
)
def test_the_words_of_a_parameter_say_its_role(tool: str, name: str, annotation: Any, role: str) -> None:
    assert role_of(Signature(tool, {name: annotation}), name, annotation) == role


@pytest.mark.parametrize(
    ("name", "annotation", "label"),
    [
        ("id_", str, "trusted"),
        ("ticket_id", str | None, "trusted"),
        ("idea", str, "untrusted"),
        ("amount", float, "trusted"),
        ("amount", str, "untrusted"),
        ("state", Literal["open"], "trusted"),
        ("anything", EmailStr, "identity"),
        ("sender", str, "identity"),
        ("sent", str, "untrusted"),
        ("date", str, "trusted"),
        ("title", str, "untrusted"),
        ("body", str, "untrusted"),
    ],
)
def test_a_field_has_a_label_by_its_type_and_its_name(name: str, annotation: Any, label: str) -> None:
    assert label_of(words_of(name), annotation) == label


@pytest.mark.parametrize(
    ("tool", "parameters", "returns", "labels"),
    [
        ("read_file", {}, str, None),
        ("get_prices", {"names": list[str]}, dict[str, float], None),
        ("get_balance", {}, float, "trusted"),
        ("get_current_day", {}, str, "trusted"),
        ("list_contacts", {}, list[Owner], "trusted"),
        ("list_letters", {}, list[str], None),
        ("close_ticket", {"ticket_id": str}, str, "ack"),
        ("send_letter", {"to": str}, Owner, "ack"),
        ("create_letter", {"title": str}, Owner, {"label": "ack", "creates": True}),
        ("add_watcher", {"ticket_id": str}, Owner, {"email": "identity"}),
    ],
)
def test_results_are_labelled_by_what_is_returned(
    tool: str, parameters: dict[str, Any], returns: Any, labels: Any
) -> None:
    assert labels_of(Signature(tool, parameters, returns)) == labels


def test_a_record_is_labelled_field_by_field_and_a_list_of_several_types_not_at_all() -> None:
    assert labels_of(Signature("search_tickets", {"query": str}, list[Ticket])) == {
        "id_": "trusted",
        "opened_by/email": "identity",
        "due": "trusted",
        "votes": "trusted",
        "watchers": "identity",
        "state": "trusted",
        "shared_with": "trusted",
        "shared_with/#keys": "identity",
        "hours": "trusted",
        "hours/#keys": "untrusted",
    }


def test_a_reference_is_tied_to_the_fields_that_give_such_ids() -> None:
    tools = [
        Signature("search_tickets", {"query": str}, list[Ticket]),
        Signature("list_contacts", {}, list[Owner]),
        Signature("close_ticket", {"ticket_id": str}, str),
        Signature("close_account", {"account_id": str}, str),
    ]
    tied = admissions_of(tools, returns=True)
    assert tied["close_ticket"]["args"] == {"ticket_id": {"flow": "ref", "of": ["search_tickets:id_"]}}
    assert tied["close_account"]["args"] == {"account_id": {"flow": "ref"}}
    assert admissions_of(tools, returns=False)["close_ticket"]["args"] == {"ticket_id": {"flow": "ref"}}


@pytest.mark.parametrize(
    ("tool", "parameters", "word"),
    [
        ("delete_ticket", {"ticket_id": str}, "delet"),
        ("set_login", {"password": str}, "password"),
        ("set_login", {"name": str}, ""),
        ("check_password", {"password": str}, ""),
        ("undelete_ticket", {"ticket_id": str}, ""),
    ],
)
def test_what_removes_or_sets_a_credential_must_be_asked_for(tool: str, parameters: dict[str, Any], word: str) -> None:
    asked_by = asked_by_of(Signature(tool, parameters))
    assert (word in asked_by) if word else asked_by == ()


def test_a_destination_is_who_receives_or_an_address() -> None:
    assert Signature("send_letter", {"to": str, "subject": str, "copies": list[str], "cc": str}).destinations == (
        "to",
        "cc",
    )
    assert Signature("get_page", {"url": str, "user": str}).destinations == ("url",)
    assert Signature("post_page", {"url": str, "content": str}).destinations == ("url",)
    assert Signature("close_ticket", {"ticket_id": str}).destinations == ()


def test_without_the_types_of_results_nothing_is_labelled() -> None:
    tools = [Signature("list_contacts", {}, list[Owner])]
    assert flow_of(tools, returns=False) == {"preset": "guarded"}
    assert flow_of(tools, returns=True) == {"preset": "guarded", "results": {"list_contacts": "trusted"}}


@pytest.mark.parametrize(("tool", "acts"), [("get_page", False), ("put_page", True), ("", True), ("_", True)])
def test_a_tool_writes_unless_its_verb_reads(tool: str, acts: bool) -> None:
    assert Signature(tool, {}).acts is acts
    assert Signature("get_page", {"url": str}).acts
