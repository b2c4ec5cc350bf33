"""The wing: the commands `view` and `top`, and trackers of metrics."""

from turnwise.wings import Wing

WING = Wing(
    commands={"top": "turnwise_view.top:top", "view": "turnwise_view.viewing:view"},
    parts={
        "monitor": {"trackers": ("turnwise_view.trackers:trackers_of", "metrics, sent elsewhere")}
    },
)
