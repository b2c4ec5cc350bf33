"""Images in requests: PNG in base64, bare or as a data URL. No image is fetched from anywhere."""

import base64
import binascii

from turnwise_gateway.dialects.fields import Fields

PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of every PNG file."""
PREFIX = "data:image/png;base64,"


def from_base64(fields: Fields, name: str, written: str | None = None) -> bytes:
    """The image in a field, or in what is `written` there. Raises RefusedError where it is none."""
    written = fields.text(name) if written is None else written
    try:
        image = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        raise fields.refused(name, "is not base64") from None
    if not image.startswith(PNG):
        raise fields.refused(name, "is not a PNG image")
    return image


def from_data_url(fields: Fields, name: str) -> bytes:
    """The image in a field that holds a URL. Raises RefusedError for URLs of other kinds."""
    url = fields.text(name)
    if not url.startswith(PREFIX):
        raise fields.refused(name, f"must begin with '{PREFIX}': nothing is fetched or converted")
    return from_base64(fields, name, url.removeprefix(PREFIX))
