"""The wing: the commands `view` and `top`."""

from turnwise.wings import Wing

WING = Wing(commands={"top": "turnwise_view.top:top", "view": "turnwise_view.viewing:view"})
