"""The error that a client gets, in the form that OpenAI's API has it."""

import http
from typing import Any


class ApiError(Exception):
    """A request that is not answered.

    Args:
      status: of HTTP.
      message: what is wrong and what to do.
      param: the field of the request that is to blame.
      code: a word for programs.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str = ""
    ):
        super().__init__(message)
        self.status, self.param = status, param
        self.code = code or http.HTTPStatus(status).phrase.lower().replace(" ", "_")

    def content(self) -> dict[str, Any]:
        """Returns the body of the reply."""
        error = {
            "message": str(self),
            "type": "invalid_request_error" if self.status < 500 else "server_error",
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def bad(param: str | None, message: str, code: str = "") -> ApiError:
    """Returns the error of a field that does not do."""
    return ApiError(400, message, param, code or "invalid_value")
