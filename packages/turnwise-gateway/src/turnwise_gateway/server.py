"""The HTTP server that agents talk to: every episode has an address with a secret of its own.

    /e/EPISODE/SECRET/v1/chat/completions, responses, messages, messages/count_tokens, models
    /e/EPISODE/SECRET/reward, end
    /next: a task on offer, for agents that call in

It listens on this machine alone unless told otherwise, and runs on the event loop of the engine.
"""

import asyncio
import hmac
import math
import secrets
import socket
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from turnwise.errors import InfrastructureError
from turnwise.types import Verdict, encodable
from turnwise_gateway import spans
from turnwise_gateway.address import Address
from turnwise_gateway.bounds import MOST_REWARD_PARTS
from turnwise_gateway.connections import (
    Impatient,
    body_of,
    bypass_proxies,
    one_more,
    raise_open_files,
    read_bytes,
)
from turnwise_gateway.dialects import chat_completions, messages
from turnwise_gateway.dialects.registry import DIALECTS, Dialect
from turnwise_gateway.remote import Offers
from turnwise_gateway.requests import RefusedError
from turnwise_gateway.sandboxed import UnixFolder
from turnwise_gateway.session import Session

REMEMBERED = 10_000
"""Episodes that have ended and are still known by their addresses."""
Handler = Callable[[Request, Session], Awaitable[Response]]


class Gateway:
    """The server, which begins with its first episode."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        public_url: str = "",
        *,
        sandboxed: bool = False,
        offers: Offers | None = None,
    ) -> None:
        """`port` 0 is any free one; `public_url` is the server's address for agents that reach it
        by another name than `host`; for `sandboxed` ones it listens at a Unix socket too, and
        others take what is on offer."""
        self._host, self._port, self._public_url = host, port, public_url.rstrip("/")
        self._sessions: dict[str, tuple[str, Session]] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._folder = UnixFolder() if sandboxed else None
        self._offers = offers
        self._numbers = 0
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    @property
    def running(self) -> bool:
        return self._serving is not None and not self._serving.done()

    async def open(self, session: Session) -> Address:
        """Give a session an address. Raises InfrastructureError where the server cannot begin."""
        async with self._starting:
            if self._server is None:
                await self._start()
        self._numbers += 1
        name, secret = f"{self._numbers}", secrets.token_urlsafe(16)
        self._sessions[name] = secret, session
        socket = None if self._folder is None else self._folder.place
        return Address(self._public_url or self._url, name, secret, socket)

    async def close(self, address: Address) -> None:
        """End a session: requests under way are stopped, later ones refused. Idempotent."""
        found = self._sessions.pop(address.episode, None)
        if found is None:
            return
        self._ended[address.episode] = address.secret
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        await found[1].close()

    async def stop(self) -> None:
        """End the server. Idempotent."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        await self._serving
        self._server = self._serving = None
        if self._folder is not None:
            self._folder.remove()

    async def _start(self) -> None:
        raise_open_files()
        bypass_proxies(self._host)
        sockets = [] if self._folder is None else [self._folder.make()]
        try:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            place = self._host, self._port
            # All episodes of a step may connect at once, which the usual backlog has no room for.
            sockets.insert(0, socket.create_server(place, family=family, backlog=2048))
        except OSError as error:
            for one in sockets:
                one.close()
            if self._folder is not None:
                self._folder.remove()
            raise InfrastructureError(
                f"the gateway cannot listen at {self._host}:{self._port}: {error.strerror}"
            ) from None
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._url = f"http://{host}:{sockets[0].getsockname()[1]}"
        app = Starlette(routes=self._routes(), exception_handlers={404: _no_route, 405: _no_route})
        app.state.reading = Counter()
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            http=Impatient,
            timeout_graceful_shutdown=1,  # the run has ended: nobody uses what is still sampled
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=sockets))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(0.001)

    def _routes(self) -> list[Route]:
        at = "/e/{episode}/{secret}"
        made = [
            Route(f"{at}{path}", self._route(_asking(one), one), methods=["POST"])
            for path, one in DIALECTS.items()
        ]
        openai: Dialect = chat_completions
        others: list[tuple[str, Handler, Dialect, str]] = [
            (messages.COUNT_PATH, _count, messages, "POST"),
            ("/v1/models", _models, openai, "GET"),
            ("/v1/models/{model}", _model, openai, "GET"),
            ("/reward", _reward, openai, "POST"),
            ("/end", _end, openai, "POST"),
        ]
        if self._offers is not None:
            made.append(Route("/next", _offering(self._offers), methods=["GET"]))
        return made + [
            Route(f"{at}{path}", self._route(handler, dialect), methods=[method])
            for path, handler, dialect, method in others
        ]

    def _route(
        self, handler: Handler, dialect: Dialect
    ) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            session = None
            try:
                session = self._session(request)
                with one_more(session):
                    return await handler(request, session)
            except RefusedError as refused:
                return JSONResponse(dialect.error(refused), refused.status)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except Exception as error:
                if session is None:
                    raise
                session.bug = error  # the episode raises it
                failed = RefusedError("turnwise failed to answer", 500, kind="api_error")
                return JSONResponse(dialect.error(failed), 500)

        return route

    def _session(self, request: Request) -> Session:
        """The session of an address. Raises RefusedError, without saying what of it is wrong."""
        name, secret = request.path_params["episode"], request.path_params["secret"]
        known = self._ended.get(name) or self._sessions.get(name, ("", None))[0]
        if not known or not hmac.compare_digest(known.encode(), secret.encode()):
            raise RefusedError(
                "there is no such episode, or the secret is wrong", 401, kind="authentication_error"
            )
        if name in self._ended:
            raise RefusedError("the episode has ended", 403, kind="permission_error")
        return self._sessions[name][1]


class _Server(uvicorn.Server):
    """Leaves signals to the run."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _asking(dialect: Dialect) -> Handler:
    async def handler(request: Request, session: Session) -> Response:
        with session.counting_refusals():
            asked = await body_of(request, session, dialect.read)
        again = request.headers.get("x-stainless-retry-count", "0") != "0"
        reply = await spans.asked(session, asked, again)
        if await request.is_disconnected():
            raise ClientDisconnect  # the reply has not arrived, and is not trained
        if not asked.stream:
            session.arrived(reply)  # before it is sent: the agent may be done the moment it has it
            return JSONResponse(dialect.body(asked, reply))

        # Made before the first is sent, so that a bug is an answer and no cut-off stream.
        told = list(dialect.events(asked, reply))

        async def events() -> AsyncIterator[str]:
            *first, last = told
            for event in first:
                if await request.is_disconnected():
                    return
                yield event
            session.arrived(reply)  # a client that has the last event has the reply
            yield last

        return StreamingResponse(events(), media_type="text/event-stream")

    return handler


def _offering(offers: Offers) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        if not offers.admits(request.headers.get("authorization", "")):
            refused = RefusedError("the key is wrong", 401, kind="authentication_error")
            return JSONResponse(chat_completions.error(refused), 401)
        try:
            seconds = float(request.query_params.get("seconds", "0"))
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            refused = RefusedError("seconds is a number", field="seconds")
            return JSONResponse(chat_completions.error(refused), 400)
        offer = await offers.next(seconds)
        if offer is None:
            return Response(status_code=204)
        if await request.is_disconnected():
            offers.give_back(offer)
            return Response(status_code=204)
        offer.taken.set()
        return JSONResponse(offer.described, headers={"cache-control": "no-store"})

    return route


async def _count(request: Request, session: Session) -> Response:
    with session.counting_refusals():
        asked = await body_of(request, session, messages.read)
        return JSONResponse(messages.counted(await session.count(asked)))


async def _models(request: Request, session: Session) -> Response:
    del request
    return JSONResponse(
        {
            "object": "list",
            "data": [_described(name) for name in session.names],
            "has_more": False,
            "first_id": session.names[0],
            "last_id": session.names[-1],
        }
    )


async def _model(request: Request, session: Session) -> Response:
    name = request.path_params["model"]
    if name not in session.names:
        raise RefusedError(f"there is no model {name!r}", 404, "model", "not_found_error")
    return JSONResponse(_described(name))


def _described(name: str) -> dict[str, Any]:
    """A role, or the policy, in the words of both families of clients."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "turnwise",
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }


async def _reward(request: Request, session: Session) -> Response:
    session.check_rewarding()
    with session.counting_refusals():
        _keep_reward(await body_of(request, session, dict), session)
    return JSONResponse({"ok": True})


def _keep_reward(given: Mapping[str, Any], session: Session) -> None:
    """Read a reward: of a reply, of a role or of the episode. Raises RefusedError."""
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in ("reward", "success", "parts", "reply", "role"):
            raise RefusedError(f"unknown field {name!r}", field=name)
    reward = _number(given, "reward")
    if "reply" in given:
        session.reward_reply(str(given["reply"]), reward)
    elif "role" in given:
        session.reward_role(str(given["role"]), reward)
    else:
        session.rewarded(_verdict(given, reward))


def _verdict(given: Mapping[str, Any], reward: float) -> Verdict:
    parts = given.get("parts") or {}
    if not isinstance(parts, Mapping):
        raise RefusedError("parts is an object of numbers", field="parts")
    if len(parts) > MOST_REWARD_PARTS:
        raise RefusedError(f"{len(parts)} parts are more than {MOST_REWARD_PARTS}", field="parts")
    success = given.get("success", reward >= 1)
    if not isinstance(success, bool):
        raise RefusedError("success is true or false", field="success")
    numbers = {encodable(name): _number(parts, name) for name in parts}
    return Verdict(reward, success, numbers)


async def _end(request: Request, session: Session) -> Response:
    await read_bytes(request, session)
    session.ended.set()
    return JSONResponse({"ok": True})


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given.get(name)
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RefusedError(f"{name} is {str(value)[:80]}: give a number", field=name)
    return number


async def _no_route(request: Request, error: Exception) -> Response:
    path = request.url.path
    refused = RefusedError(
        f"there is no {request.method} {path.rpartition('/v1/')[2]} here: use "
        "/v1/chat/completions, /v1/responses, /v1/messages, /v1/models, /reward or /end",
        getattr(error, "status_code", 404),
        kind="not_found_error",
    )
    dialect: Dialect = messages if f"{messages.PATH}/" in f"{path}/" else chat_completions
    return JSONResponse(dialect.error(refused), refused.status)
