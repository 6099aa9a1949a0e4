"""Tests mirror the code: `catalog/ingest/hot.py` has `tests/catalog/ingest/test_hot.py`.

A module may be covered by its package's test file (`tests/catalog/test_ingest.py`) or by a longer name of its own
(`test_hot_limits.py`). What has none is listed here with the reason.
"""

from pathlib import Path

from tests.architecture.tree import CLONE, code, name

ALLOWED: dict[str, str] = {
    "kvconsole/asgi.py": "composition; every walk starts it",
    "kvconsole/web.py": "the command line of it; every walk starts it",
    "kvconsole/wsgi.py": "composition; started by tests/kvconsole/test_settings.py",
}


def _has_test(path: Path) -> bool:
    place = Path(name(path))
    if place.stem == "__main__":
        place = place.with_name("main.py")
    exact = CLONE / "tests" / place.parent
    if list(exact.glob(f"test_{place.stem}.py")) or list(exact.glob(f"test_{place.stem}_*.py")):
        return True
    above = [parent for parent in place.parents if parent.parts and len(parent.parts) > 1]
    return any(list((CLONE / "tests" / p.parent).glob(f"test_{p.name}*.py")) for p in above)


def test_every_module_has_its_tests() -> None:
    ignored = ("__init__", "apps")
    modules = [p for p in code() if p.stem not in ignored and "migrations" not in p.parts]
    missing = sorted(name(p) for p in modules if name(p) not in ALLOWED and not _has_test(p))
    assert not missing, "no test file of the same name under tests/"


def test_the_list_of_exceptions_is_true() -> None:
    assert not [where for where in ALLOWED if not (CLONE / where).exists() or _has_test(CLONE / where)]
