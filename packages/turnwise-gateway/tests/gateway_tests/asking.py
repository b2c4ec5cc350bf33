"""A session of one agent, and requests to it, for tests."""

from typing import Any

from gateway_tests.hashed_engine import TOKENIZER, HashedEngine, check_record
from turnwise.capture import Capture
from turnwise.config import RolloutConfig, ScaffoldConfig
from turnwise.tokens import Tokens
from turnwise.types import Turn
from turnwise_gateway.rendering import Scaffolds
from turnwise_gateway.requests import Message, Reply, Request, ToolSchema
from turnwise_gateway.session import Session

LOOKUP = ToolSchema(
    "lookup",
    "Look a country up.",
    {"type": "object", "properties": {"country": {"type": "string"}}, "required": ["country"]},
)
SCAFFOLDS = Scaffolds(ScaffoldConfig(options={"instructions": ""}), TOKENIZER)
BUDGETS = {"max_turns": 40, "max_turn_tokens": 80, "max_tokens": 2000, "max_tool_calls": 100}
LIMITS = RolloutConfig(top_p=0.9, **BUDGETS)
PROMPT = (Message("user", "Capital of France?"),)


def limits(**changes: float) -> RolloutConfig:
    return LIMITS.model_copy(update=changes)


def session(engine: Any = None, limits: RolloutConfig = LIMITS, **others: Any) -> Session:
    engine = engine or HashedEngine()
    engine.open("0-0")
    settings: dict[str, Any] = {"seed": 5, "rewarded_by_agent": True, "scaffolds": SCAFFOLDS}
    return Session("0-0", limits=limits, engine=engine, tokenizer=TOKENIZER, **(settings | others))


def request(messages: tuple[Message, ...] = PROMPT, **others: Any) -> Request:
    return Request(messages, (LOOKUP,), **others)


async def asked(own: Session, messages: tuple[Message, ...], **others: Any) -> Reply:
    """A reply, which arrives."""
    reply = await own.ask(request(messages, **others))
    own.arrived(reply)
    return reply


def went_on(messages: tuple[Message, ...], reply: Reply, shown: str, choice: int = 0) -> Any:
    """The conversation after a reply, and what is shown then."""
    chosen = reply.choices[choice]
    told = [Message("tool", shown, call=call.id) for call in chosen.calls]
    echo = Message("assistant", chosen.text, chosen.calls)
    return (*messages, echo, *(told or [Message("user", shown)]))


def recorded(own: Session) -> tuple[Tokens, tuple[Turn, ...], Capture]:
    """The record, of which each token was sampled so."""
    tokens, turns, capture = own.record()
    check_record(tokens)
    return tokens, turns, capture


def texts(own: Session) -> list[str]:
    tokens, _, _ = own.record()
    return [TOKENIZER.decode(tokens.ids[span].tolist()) for span in tokens.spans]
