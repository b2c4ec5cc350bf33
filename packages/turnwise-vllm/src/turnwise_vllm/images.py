"""Images in a request to vLLM, and whether the server read the prompt that is learned from.

A server makes the tokens of an image itself, with the model's own processor: it is sent the image,
and the prompt as a chat template writes it. Its answer says which prompt came out of that. Not
here: the rest of a request and of an answer (`completions.py`).
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.errors import ConfigError, InfrastructureError
from turnwise.forward.images import ImageReader, plain
from turnwise.tokens import Image


def shown(
    prompt: Sequence[int], images: Sequence[Image], reader: ImageReader | None
) -> dict[str, Any]:
    """The fields of a request that show a server a prompt with images; none without images.

    Raises ConfigError for a model that takes none, InfrastructureError for a prompt with a
    placeholder that stands for nothing before an image: the server would put the image there.
    """
    if not images:
        return {}
    if reader is None:
        raise ConfigError("the model takes no images, and is given some")
    templated = reader.templated(prompt, images)
    behind = list(prompt[images[-1].end :]).count(reader.token)
    if templated.count(reader.token) - behind != len(images):
        raise InfrastructureError(
            "the model wrote the placeholder of images itself, and was shown an image after that: "
            "vLLM would take the one for the other"
        )
    return {
        "token_ids": [int(token) for token in templated],
        "content_parts": [{"type": "image_url", "url": _url(image.png)} for image in images],
        "return_token_ids": True,
    }


def check_read(answer: Mapping[str, Any], prompt: Sequence[int], images: Sequence[Image]) -> None:
    """Raise InfrastructureError for an answer that was sampled after another prompt with images."""
    if not images:
        return
    read = answer.get("prompt_token_ids")
    if read is None:
        raise InfrastructureError(
            "vLLM does not say which tokens it read (prompt_token_ids), which vLLM 0.32 or later "
            "does"
        )
    if list(read) != list(prompt):
        raise InfrastructureError(
            f"vLLM read {len(read)} other tokens than the {len(prompt)} of the prompt: its image "
            "processor is not the one that the model was loaded with"
        )


def _url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(plain(png)).decode()
