"""The flat record of a trajectory's tokens: plain data, no I/O, no torch.

Each token knows where it came from, and the loss mask is derived from that alone. How messages
become tokens is in `scaffolds`.

Next: `config/recipe.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

NO_VERSION = -1
"""Policy version of a token that no policy sampled."""
NO_EXPERT = -1
"""Expert of a token whose routing is not known."""


class Source(IntEnum):
    """The source of a token. Only MODEL tokens were sampled by the policy.

    A token that the engine or the scaffold forced (a closing tag, an end-of-turn marker) is
    TEMPLATE, even in the middle of the model's turn.

    >>> Source(2)
    <Source.MODEL: 2>
    """

    TEMPLATE = 0
    USER = 1
    MODEL = 2
    TOOL = 3
    ENVIRONMENT = 4
    INHERITED = 5
    """Sampled in another trajectory, or an earlier context of this one; trained only there."""


@dataclass(frozen=True)
class Segment:
    """A run of tokens of one source, as a scaffold produces them.

    Example: Segment([17, 4, 9], Source.TOOL)
    """

    tokens: Sequence[int]
    source: Source
    image: bytes | None = field(default=None, repr=False)
    """The image that the tokens stand for, as PNG; None for words."""


@dataclass(frozen=True)
class Image:
    """A run of tokens that stands for an image: `length` of them from the place `start` on.

    Example: Image(12, 66, png)
    """

    start: int
    length: int
    png: bytes = field(repr=False)

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.start + self.length


@dataclass(frozen=True, eq=False)
class KeptTokens:
    """The tokens that top_k, top_p and min_p left at each of n places, among which that of the
    place was drawn. Sparse: a place without any was not sampled so.

    >>> kept = KeptTokens.of([[3, 7], [], [5]])
    >>> kept.counts.tolist(), kept[1:].ids.tolist()
    ([2, 0, 1], [5])
    """

    ids: np.ndarray = field(repr=False)
    """int32[m], those of the first place, then those of the second, and so on."""
    counts: np.ndarray
    """int32[n], how many each place has; 0 where all tokens could be drawn, or none was."""

    def __post_init__(self) -> None:
        self.ids.setflags(write=False)
        self.counts.setflags(write=False)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray]) -> "KeptTokens":
        """Make the record of each place's tokens."""
        ids = [np.asarray(row, np.int32) for row in rows]
        counts = np.array([len(row) for row in rows], np.int32)
        return cls(np.concatenate([np.empty(0, np.int32), *ids]), counts)

    @classmethod
    def joined(cls, parts: Sequence["KeptTokens | int"]) -> "KeptTokens":
        """Join records, one after another; an int stands for so many places without any."""
        known = [part for part in parts if isinstance(part, KeptTokens)]
        counts = [
            part.counts if isinstance(part, KeptTokens) else np.zeros(part, np.int32)
            for part in parts
        ]
        return cls(
            np.concatenate([np.empty(0, np.int32), *(part.ids for part in known)]),
            np.concatenate([np.empty(0, np.int32), *counts]),
        )

    @classmethod
    def chosen(cls, parts: Sequence[tuple["KeptTokens | None", np.ndarray]]) -> "KeptTokens | None":
        """Join what some records have at places int64[k], one after another; None where there is no
        record. A record that is None has nothing at its places."""
        if all(kept is None for kept, _ in parts):
            return None
        return cls.joined([len(k) if kept is None else kept[k] for kept, k in parts])

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, places: slice | np.ndarray) -> "KeptTokens":
        """Take some places, a slice or int64[k]."""
        counts = self.counts[places]
        ends, total = np.cumsum(counts), int(counts.sum())
        starts = (np.cumsum(self.counts) - self.counts)[places]
        # arange counts through all chosen ids; less those before, within one place.
        which = np.repeat(starts - (ends - counts), counts) + np.arange(total)
        return KeptTokens(self.ids[which], counts.copy())


@dataclass(frozen=True, repr=False)
class Tokens:
    """The flat token record of one trajectory: five arrays of one length n, and where its contexts
    are. It does not change, and its arrays are read-only; `with_…` give a longer record.

    A context is what the model read at once. There is one, unless a full window was compacted: then
    the next one begins with copies of some of its tokens, and each sampled token is MODEL in the
    one context in which it was sampled, and nowhere else.

    Example (prompt P0 P1, the model samples A0 A1, a tool returns T0, the model samples A2):

        tokens   P0   P1   A0    A1    T0   A2
        source   USER USER MODEL MODEL TOOL MODEL
        turn     0    0    0     0     0    1
        version  -1   -1   7     7     -1   8
        logprob  nan  nan  -0.1  -2.0  nan  -0.3
        mask     0    0    1     1     0    1        (derived)

    >>> Tokens.empty().with_segments([Segment([17, 4], Source.USER)], turn=0).mask.tolist()
    [False, False]
    """

    ids: np.ndarray
    """int64, token ids exactly as the engine saw and sampled them."""
    source: np.ndarray
    """uint8, `Source`."""
    turn: np.ndarray
    """int32, from 0; an observation belongs to the turn whose action caused it."""
    version: np.ndarray
    """int32, version of the policy that sampled the token; NO_VERSION for all others."""
    logprob: np.ndarray
    """float32, behaviour log-probability at sampling; NaN for tokens that were not sampled."""
    contexts: np.ndarray = field(default_factory=lambda: np.zeros((1, 2), np.int64))
    """int64[contexts, 2], in order: where a context begins, and where in it the tokens begin that
    are not copied from the one before."""
    images: tuple[Image, ...] = ()
    """Images in order; each one's tokens have one source and turn, and were not sampled."""
    experts: np.ndarray | None = None
    """int16[n, routers, k], the experts that each router of a mixture sent the token to when the
    engine first read it; NO_EXPERT where it did not. None where nothing was recorded."""
    kept: KeptTokens | None = None
    """The tokens among which each sampled one was drawn; None where nothing was recorded."""

    def __post_init__(self) -> None:
        for name in ("ids", "source", "turn", "version", "logprob", "contexts"):
            getattr(self, name).setflags(write=False)
        if self.experts is not None:
            self.experts.setflags(write=False)

    @classmethod
    def empty(cls) -> "Tokens":
        """A record of no tokens, to be extended."""
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.uint8),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.empty(0, np.float32),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        """A short text: asyncio, among others, would print whole arrays of a trajectory."""
        return f"Tokens({len(self)}, {int(self.mask.sum())} sampled)"

    @property
    def mask(self) -> np.ndarray:
        """bool, True where the policy sampled the token: the only mask there is."""
        mask: np.ndarray = self.source == Source.MODEL
        return mask

    @property
    def spans(self) -> list[slice]:
        """The place of each context; before a token the model read those before it in its own."""
        starts = self.contexts[:, 0].tolist()
        return [
            slice(start, end) for start, end in zip(starts, [*starts[1:], len(self)], strict=True)
        ]

    @property
    def copied(self) -> np.ndarray:
        """bool[n], True where a token is a copy from an earlier context."""
        copied = np.zeros(len(self), np.bool_)
        for start, fresh in self.contexts:
            copied[start:fresh] = True
        return copied

    @property
    def image_mask(self) -> np.ndarray:
        """bool[n], True where a token stands for an image."""
        mask = np.zeros(len(self), np.bool_)
        for image in self.images:
            mask[image.start : image.end] = True
        return mask

    @cached_property
    def routed(self) -> int:
        """The number of first tokens of the last context whose experts are recorded."""
        if self.experts is None:
            return 0
        # All routers of a token are recorded together: the first expert stands for all.
        missing = np.flatnonzero(self.experts[self.spans[-1], 0, 0] == NO_EXPERT)
        return int(missing[0]) if len(missing) else len(self) - self.spans[-1].start

    def images_in(self, span: slice, end: int | None = None) -> tuple[Image, ...]:
        """Images of a context, with places counted from its beginning; with `end` those of its
        first so many tokens."""
        stop = span.stop if end is None else span.start + end
        return tuple(
            replace(image, start=image.start - span.start)
            for image in self.images
            if span.start <= image.start and image.end <= stop
        )

    def with_context(self, kept: np.ndarray) -> "Tokens":
        """The record with a new context, which begins with copies of the tokens at the places
        int64[k]; what was sampled is INHERITED there. Of an image all tokens are kept, or none."""
        start = len(self)
        places = {int(place): start + index for index, place in enumerate(kept)}
        images = tuple(
            replace(image, start=places[image.start])
            for image in self.images
            if image.start in places
        )
        source = self.source[kept]
        # A copy is not trained: its token is, where it was sampled.
        source[source == Source.MODEL] = Source.INHERITED
        copied = self._with(self.ids[kept], source, self.turn[kept], NO_VERSION, None, images)
        contexts = np.vstack([self.contexts, [[start, start + len(kept)]]])
        return replace(copied, contexts=contexts)

    def with_segments(self, segments: Sequence[Segment], turn: int) -> "Tokens":
        """The record with tokens after it that no policy sampled. Raises ValueError for a MODEL
        segment: sampled tokens come with their log-probabilities through `with_sampled` only."""
        if any(segment.source == Source.MODEL for segment in segments):
            raise ValueError("model tokens are appended by with_sampled, from the engine")
        ids = [token for segment in segments for token in segment.tokens]
        lengths = [len(segment.tokens) for segment in segments]
        starts = len(self) + np.cumsum([0, *lengths])
        images = tuple(
            Image(int(start), len(segment.tokens), segment.image)
            # `starts` has the end as well.
            for start, segment in zip(starts, segments, strict=False)
            if segment.image is not None
        )
        source = np.repeat([int(segment.source) for segment in segments], lengths)
        return self._with(ids, source, turn, NO_VERSION, None, images)

    def with_sampled(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float],
        version: int | Sequence[int],
        turn: int,
        experts: np.ndarray | None = None,
        kept: KeptTokens | None = None,
    ) -> "Tokens":
        """The record with tokens after it as the engine sampled them, with its log-probabilities;
        the version of the policy is that of all of them, or one for each. `experts`, int16[m,
        routers, k], are those of the context's tokens after the first `routed`, `kept` those among
        which each new token was drawn."""
        if len(ids) != len(logprobs):
            raise ValueError(f"{len(ids)} sampled tokens with {len(logprobs)} log-probabilities")
        if kept is not None and len(kept) != len(ids):
            raise ValueError(f"{len(ids)} sampled tokens with {len(kept)} sets that were kept")
        return self._with(ids, Source.MODEL, turn, version, logprobs, experts=experts, kept=kept)

    def _with(
        self,
        ids: Sequence[int] | np.ndarray,
        source: Source | np.ndarray,
        turn: int | np.ndarray,
        version: int | Sequence[int],
        logprobs: Sequence[float] | None,
        images: tuple[Image, ...] = (),
        experts: np.ndarray | None = None,
        kept: KeptTokens | None = None,
    ) -> "Tokens":
        """The tokens with these after them; `logprobs` is None for tokens that were not sampled."""
        count = len(ids)
        given = [np.nan] * count if logprobs is None else logprobs
        return Tokens(
            np.concatenate([self.ids, np.asarray(ids, np.int64).reshape(count)]),
            # np.full takes one value for all, or an array of one for each.
            np.concatenate([self.source, np.full(count, source, np.uint8)]),
            np.concatenate([self.turn, np.full(count, turn, np.int32)]),
            np.concatenate([self.version, np.full(count, version, np.int32)]),
            np.concatenate([self.logprob, np.asarray(given, np.float32)]),
            self.contexts,
            self.images + images,
            self._experts_with(count, experts),
            self._kept_with(count, kept),
        )

    def _kept_with(self, count: int, new: KeptTokens | None) -> KeptTokens | None:
        """Extend the record of what was kept by `count` more tokens."""
        known = self.kept
        if known is None and new is None:
            return None
        before = len(self) if known is None else known
        return KeptTokens.joined([before, count if new is None else new])

    def _experts_with(self, count: int, new: np.ndarray | None) -> np.ndarray | None:
        """The experts with those of `count` more tokens, of which as many are known as are new."""
        known = self.experts
        like = new if known is None else known
        if like is None:
            return None
        experts = np.full((len(self) + count, *like.shape[1:]), NO_EXPERT, np.int16)
        if known is not None:
            experts[: len(self)] = known
        if new is not None:
            start = self.spans[-1].start + self.routed
            experts[start : start + len(new)] = new
        return experts
