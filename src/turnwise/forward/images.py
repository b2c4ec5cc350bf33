"""Vision-language models: which tokens stand for an image, and what the decoder reads there.

An image is a run of placeholder tokens in the ids; before the decoder their embeddings are replaced
by the features that the model's tower and projector make of it. Those two are frozen, so an image's
features are numbers that never change: one reader serves a model and all its copies, and encodes
each image once while it is remembered. Where the decoder has rotary positions along three axes
(time, rows, columns: Qwen2-VL, arXiv 2409.12191) they are computed here.
"""

import inspect
import io
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.errors import DataError, InfrastructureError, MissingExtraError, NotSupportedError
from turnwise.tokens import Image

REMEMBERED = 1 << 28
"""Bytes of features that a reader keeps, those of the images that were used last."""
FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""Files of a vision-language model's folder besides weights, configuration and tokenizer."""

LLAVA_TOWERS = ("clip_vision_model", "siglip_vision_model")

Layout = Callable[[str, int, Mapping[str, Any]], str]
"""(placeholder, how many features, what the image processor says) -> the tokens of an image."""


def _in_tiles(token: str, count: int, inputs: Mapping[str, Any]) -> str:
    """An image that was cut up: its tiles, row by row, and then all of it."""
    rows, columns = int(inputs["rows"][0][0]), int(inputs["cols"][0][0])
    # The whole image, in small, has as many features as each of its tiles.
    own, around = token * (count // (rows * columns + 1)), "<fake_token_around_image>"
    tiles = "".join(
        "".join(f"{around}<row_{r}_col_{c}>{own}" for c in range(1, columns + 1)) + "\n"
        for r in range(1, rows + 1)
    )
    between = "\n" if rows else ""
    return f"{tiles}{between}{around}<global-img>{own}{around}"


@dataclass(frozen=True)
class Family:
    """The differences between families of models that read images."""

    layout: Layout
    axes: bool = False
    """Whether rotary positions have three axes."""
    framed: bool = False
    """Whether chat templates write all around placeholders, and not one placeholder alone."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the image processor, beside those of the model's folder."""


_TILES = Family(_in_tiles, options={"return_row_col_info": True})
_QWEN = Family(
    lambda token, count, _: f"<|vision_start|>{token * count}<|vision_end|>", axes=True, framed=True
)
FAMILIES: dict[str, Family] = {
    "idefics3": _TILES,
    "internvl": Family(
        lambda token, count, _: f"<img>{token * count}</img>", options={"crop_to_patches": True}
    ),
    "llava": Family(lambda token, count, _: token * count),
    "qwen2_5_vl": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "smolvlm": _TILES,
}
"""Families by the `model_type` of transformers. Not among them are models that look at images by
attention of its own (Llama 3.2's) or in both directions (Gemma 3, PaliGemma)."""


@dataclass(frozen=True)
class Features:
    """Features of an image of k placeholders, from a model's tower and projector."""

    embeddings: Tensor
    """[k, width]"""
    layers: tuple[Tensor, ...]
    """[k, width] each, to be added to the states after the first layers (Qwen3-VL)."""
    grid: tuple[int, int]
    """Rows and columns, where there are three axes; else (0, 0)."""

    @property
    def size(self) -> int:
        """Size of the features in bytes."""
        return sum(each.nbytes for each in (self.embeddings, *self.layers))


@dataclass(frozen=True)
class ImageInputs:
    """The placeholders of one forward pass, and what takes their place."""

    places: NDArray[np.bool_]
    """[n, inputs], k of them True."""
    embeddings: Tensor | None
    """[k, width], in row-major order of the places; None without images."""
    layers: tuple[Tensor, ...]
    """Layers as in `Features`, for all k."""
    axes: NDArray[np.int64] | None
    """[3, n, inputs], rotary positions; None where they are those of the inputs."""


class ImageReader:
    """The images of a model. Example: `reader.tokens(png)`, then `reader.arguments(decoder, ids,
    reader.shown(ids, [[Image(start, length, png)]]))` for the decoder's forward."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        processor: Any,
        files: Sequence[Path] = (),
    ) -> None:
        """Freezes all but decoder and output layer; `files` are kept with a saved model."""
        self.family = FAMILIES[model.config.model_type]
        self.token: int = model.config.image_token_id
        """The placeholder."""
        self._model, self._processor, self._files = model, processor, files
        self._tokenizer = tokenizer
        wanted = set(inspect.signature(model.get_image_features).parameters)
        self._wanted = wanted & {"pixel_values", "pixel_attention_mask", "image_grid_thw"}
        self._known: OrderedDict[bytes, tuple[Features, list[int]]] = OrderedDict()
        self._grids: dict[bytes, tuple[int, int]] = {}
        self._lock = threading.Lock()
        trained = {id(p) for p in model.get_decoder().parameters()}
        trained |= {id(p) for p in model.get_output_embeddings().parameters()}
        for parameter in model.parameters():
            # What reads images is not trained.
            parameter.requires_grad_(id(parameter) in trained and parameter.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: a copy of the model has the same tower."""
        del memo
        return self

    def tokens(self, png: bytes) -> list[int]:
        """The tokens that stand for an image; InfrastructureError for bytes that are none."""
        return list(self._read(png)[1])

    def templated(self, ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        """The ids as chat templates write them: one placeholder for each image."""
        found: list[int] = []
        place = 0
        for image in images:
            own = list(ids[image.start : image.end])
            first = own.index(self.token)
            last = len(own) - own[::-1].index(self.token)
            around = (own[:first], own[last:]) if self.family.framed else ([], [])
            found += [*ids[place : image.start], *around[0], self.token, *around[1]]
            place = image.end
        return [*found, *ids[place:]]

    def features(self, png: bytes) -> Features:
        return self._read(png)[0]

    def grid(self, png: bytes) -> tuple[int, int]:
        """Rows and columns of an image's features, which are kept of all images."""
        name = sha256(png).digest()
        if name not in self._grids:
            self._grids[name] = self.features(png).grid
        return self._grids[name]

    def shown(self, ids: NDArray[np.int64], rows: Sequence[Sequence[Image]]) -> ImageInputs:
        """The placeholders of int64[n, inputs], with the whole images of each row in order."""
        places = np.zeros(ids.shape, np.bool_)
        for row, images in enumerate(rows):
            places[row, self.placeholders(ids[row], images)] = True
        found = [self.features(image.png) for images in rows for image in images]
        axes = None
        if self.family.axes:
            axes = np.stack([self.axes(*pair) for pair in zip(ids, rows, strict=True)], axis=1)
        return joined(places, found, axes)

    def placeholders(self, ids: NDArray[np.int64], images: Sequence[Image]) -> NDArray[np.int64]:
        """The places of int64[n] ids that stand for a feature: placeholders within images."""
        inside = np.zeros(len(ids), np.bool_)
        for image in images:
            inside[image.start : image.start + image.length] = True
        return np.flatnonzero(inside & (ids == self.token))

    def axes(self, ids: NDArray[np.int64], images: Sequence[Image]) -> NDArray[np.int64]:
        """int64[3, n], rotary positions: an image's time is its beginning's, its rows and columns
        count from there, and text goes on after the longer of the two."""
        found = np.tile(np.arange(len(ids)), (3, 1))
        for image in images:
            own = self.placeholders(ids, [image])
            rows, columns = self.grid(image.png)
            end = int(own[-1]) + 1
            position = found[0, own[0]]
            found[:, own] = position + np.indices((1, rows, columns)).reshape(3, -1)
            found[:, end:] = position + max(rows, columns) + np.arange(len(ids) - end)
        return found

    def arguments(self, decoder: Any, ids: Tensor, shown: ImageInputs) -> dict[str, Any]:
        """The arguments that the decoder's forward gets in place of int64[n, inputs] ids."""
        embedded = decoder.get_input_embeddings()(ids)
        arguments: dict[str, Any] = {"inputs_embeds": embedded}
        if shown.axes is not None:
            arguments["position_ids"] = torch.from_numpy(shown.axes).to(ids.device)
        if shown.embeddings is None:
            return arguments
        places = torch.from_numpy(shown.places).to(ids.device)
        features = shown.embeddings.to(embedded.device, embedded.dtype)
        arguments["inputs_embeds"] = embedded.masked_scatter(places[..., None], features)
        if shown.layers:
            arguments |= {"visual_pos_masks": places, "deepstack_visual_embeds": list(shown.layers)}
        return arguments

    def save(self, folder: Path) -> None:
        """Put beside a saved model what its processor needs."""
        for file in self._files:
            shutil.copyfile(file, folder / file.name)

    def _read(self, png: bytes) -> tuple[Features, list[int]]:
        # Held while encoding as well: two threads that want one image encode it once.
        with self._lock:
            found = self._known.get(png)
            if found is None:
                found = self._known[png] = self._encoded(png)
                size = sum(features.size for features, _ in self._known.values())
                # The newest stays, however large: it is wanted now.
                while size > REMEMBERED and len(self._known) > 1:
                    _, (oldest, _) = self._known.popitem(last=False)
                    size -= oldest.size
            self._known.move_to_end(png)
            return found

    def _encoded(self, png: bytes) -> tuple[Features, list[int]]:
        inputs = self._processor([opened(png)], return_tensors="pt", **self.family.options)
        device = self._model.device
        given = {name: inputs[name].to(device) for name in self._wanted & set(inputs)}
        # Engine and learner share what is remembered, whoever asks first: so no inference tensors,
        # which no backward pass may save, and no rounding by the learner's autocast.
        lower = torch.autocast(device.type, enabled=False)
        with torch.inference_mode(False), torch.no_grad(), lower:
            output = self._model.get_image_features(**given, return_dict=True)
        layers = getattr(output, "deepstack_features", None) or ()
        features = Features(
            _flat(output.pooler_output), tuple(map(_flat, layers)), self._grid(inputs)
        )
        name = str(self._tokenizer.convert_ids_to_tokens(self.token))
        text = self.family.layout(name, len(features.embeddings), inputs)
        return features, list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _grid(self, inputs: Mapping[str, Any]) -> tuple[int, int]:
        if not self.family.axes:
            return 0, 0
        merged = self._model.config.vision_config.spatial_merge_size
        _, rows, columns = inputs["image_grid_thw"][0].tolist()
        return rows // merged, columns // merged


def joined(
    places: NDArray[np.bool_], found: Sequence[Features], axes: NDArray[np.int64] | None
) -> ImageInputs:
    """Join images, or parts of them, in the order of their places."""
    if not found:
        return ImageInputs(places, None, (), axes)
    layers = tuple(map(torch.cat, zip(*(each.layers for each in found), strict=True)))
    return ImageInputs(places, torch.cat([each.embeddings for each in found]), layers, axes)


def reader_of(model: nn.Module) -> ImageReader | None:
    """The reader of a model that `load_model` loaded, or None."""
    reader: ImageReader | None = getattr(model, "image_reader", None)
    return reader


def opened(png: bytes) -> Any:
    try:
        import PIL.Image
    except ImportError:
        raise MissingExtraError("pillow", "vision") from None
    try:
        return PIL.Image.open(io.BytesIO(png)).convert("RGB")
    # Pillow raises SyntaxError for a broken chunk of a PNG.
    except (OSError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise InfrastructureError(f"an image cannot be read: {error}") from error


def plain(png: bytes) -> bytes:
    """The image as a PNG that others read as `opened` does: no transparency, no orientation."""
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(png))
    if image.mode == "RGB" and not image.getexif():
        return png
    return _as_png(np.asarray(opened(png)))


def random_image() -> bytes:
    """A PNG of coarse blocks of colour, always the same: changes of size or colour show."""
    blocks = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    return _as_png(blocks.repeat(31, axis=0).repeat(31, axis=1))


def _as_png(pixels: NDArray[np.uint8]) -> bytes:
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def attach_reader(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> None:
    """Give a model of `FAMILIES` its reader. Raises DataError where its source has no image
    processor, NotSupportedError for a LLaVA whose tower breaks rows (Pixtral's)."""
    tower = getattr(model.config.vision_config, "model_type", "")
    if model.config.model_type == "llava" and tower not in LLAVA_TOWERS:
        raise NotSupportedError(
            f"model {source}: images of a LLaVA with the tower {tower} are laid out in another "
            f"way; known are {' and '.join(LLAVA_TOWERS)}"
        )
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtraError("pillow", "vision") from None
    from transformers import AutoImageProcessor
    from transformers.utils import cached_file

    try:
        processor = AutoImageProcessor.from_pretrained(source, backend="pil")
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(f"image processor of {source} cannot be loaded: {reason}") from error
    quietly = {
        "_raise_exceptions_for_missing_entries": False,
        "_raise_exceptions_for_connection_errors": False,
    }
    paths = [cached_file(source, name, **quietly) for name in FILES]
    model.image_reader = ImageReader(
        model, tokenizer, processor, [Path(path) for path in paths if path is not None]
    )


def _flat(features: Any) -> Tensor:
    together = torch.cat(list(features)) if not isinstance(features, Tensor) else features
    return together.reshape(-1, together.shape[-1])
