"""The kinds of tasks, by name."""

from turnwise_environments.web_forms.kinds.accounts import Inbox, Login, Settings
from turnwise_environments.web_forms.kinds.base import Kind
from turnwise_environments.web_forms.kinds.booking import Booking
from turnwise_environments.web_forms.kinds.fields import Boxes, Button, Choices, Day, Fields
from turnwise_environments.web_forms.kinds.lists import Lookup, Menu, Rows, Search

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *(Button(), Fields(), Choices(), Boxes(), Day(), Login(), Settings(), Menu(), Rows()),
        *(Search(), Lookup(), Inbox(), Booking()),
    )
}
