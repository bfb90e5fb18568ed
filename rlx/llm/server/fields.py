"""The fields of a request, checked as they are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlx.errors import did_you_mean

__all__ = ["ApiError", "Fields"]


class ApiError(Exception):
    """What a request is answered with that cannot be served: the status, and the fields of
    OpenAI's error."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind = message, status, kind
        self.param, self.code = param, code

    def body(self) -> dict[str, Any]:
        """The JSON of it."""
        error = {
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        }  # fmt: skip
        return {"error": error}


class Fields:
    """The object of a request's body; a field that is null counts as one that is not there."""

    def __init__(self, body: Any, known: Collection[str]) -> None:
        if not isinstance(body, dict):
            raise ApiError(f"the body is a JSON object, found {_kind(body)}")
        for name in body:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ApiError(f"no field is called {name!r}{hint}", param=name)
        self.body: Mapping[str, Any] = body

    def get(self, name: str) -> Any:
        """A field as it is; None if it is not there."""
        return self.body.get(name)

    def text(self, name: str, default: Any) -> Any:
        """A string."""
        return self._of(name, (str,), "a string", default)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A bool, by default false."""
        return self._of(name, (bool,), "true or false", default)

    def number(self, name: str, default: Any = None) -> Any:
        """A number."""
        found = self._of(name, (int, float), "a number", default)
        try:
            return None if found is None else float(found)
        except OverflowError:
            raise ApiError(f"{name} is too large a number", param=name) from None

    def count(self, name: str, least: int = 1, most: int = 1 << 31, default: Any = None) -> Any:
        """A whole number in a range."""
        found = self._of(name, (int,), "a whole number", default)
        if found is not default and not least <= found <= most:
            raise ApiError(f"{name} is from {least} to {most}, found {found}", param=name)
        return found

    def texts(self, name: str) -> list[str]:
        """A string or a list of them, by default none."""
        found = self.get(name)
        found = [] if found is None else [found] if isinstance(found, str) else found
        if not isinstance(found, list) or not all(isinstance(s, str) for s in found):
            raise ApiError(f"{name} is a string or a list of strings", param=name)
        return found

    def objects(self, name: str) -> list[Any]:
        """A list of objects, by default none."""
        found = self._of(name, (list,), "a list of objects", [])
        if not all(isinstance(item, dict) for item in found):
            raise ApiError(f"{name} is a list of objects", param=name)
        return found

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        """An object."""
        return self._of(name, (dict,), "an object", None)

    def refuse(self, *names: str, but: Sequence[Any] = (None, False, 0, [], "")) -> None:
        """ApiError for fields that ask for something which is not there."""
        for name in names:
            if self.get(name) not in but:
                raise ApiError(f"{name} is not supported", param=name, code="unsupported")

    def _of(self, name: str, kinds: tuple[type, ...], what: str, default: Any) -> Any:
        found = self.get(name)
        if found is None:
            return default
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            raise ApiError(f"{name} is {what}, found {_kind(found)}", param=name)
        return found


def _kind(value: Any) -> str:
    """How JSON calls a value's kind."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    names = {dict: "an object", list: "a list", str: "a string"}
    return names.get(type(value), "a number")
