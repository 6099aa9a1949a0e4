"""Event types: names, numbers, closed fields."""

import re

from audit.registry import TYPES

FIRST = {"tenant.created": 0x0101, "namespace.generation_bumped": 0x0211, "node.enrolled": 0x0402, "key.leased": 0x0601}


def test_numbers_are_given_once_and_for_ever():
    numbers = [t.number for t in TYPES.values()]
    assert len(set(numbers)) == len(numbers)
    assert {name: TYPES[name].number for name in FIRST} == FIRST


def test_names_are_a_noun_and_what_was_done():
    for name, kind in TYPES.items():
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)
        assert 0x0101 <= kind.number <= 0x0FFF
        assert kind.name == name


def test_no_field_is_made_for_personal_data():
    fields = {f for kind in TYPES.values() for f in kind.fields}
    assert not fields & {"email", "username", "ip", "address", "password", "secret", "token", "subject", "session"}
