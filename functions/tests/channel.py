"""Watching Firestore at the channel: every call that leaves the process, with its request."""

from collections.abc import Callable
from typing import Any

import grpc.aio


class Channel:
    """The calls that went out, in order."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.interceptors: list[Any] = [_Single(self.requests), _Streaming(self.requests)]

    @property
    def calls(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.requests]


class _Single(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, requests: list[Any]) -> None:
        self._requests = requests

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        self._requests.append(request)
        return await continuation(client_call_details, request)


class _Streaming(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, requests: list[Any]) -> None:
        self._requests = requests

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        self._requests.append(request)
        return await continuation(client_call_details, request)
