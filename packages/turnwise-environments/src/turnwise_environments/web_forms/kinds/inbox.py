"""A box of mails: to delete one, star it, forward it, or reply to it."""

import random

from turnwise_environments.tools.browser.sites import Request
from turnwise_environments.web import Look
from turnwise_environments.web_forms import html
from turnwise_environments.web_forms.kinds.base import Draft, FormSite, Kind, Way
from turnwise_environments.web_forms.words import Words

REPLIES = (
    "Thank you, that suits me.",
    "Sorry, I cannot come.",
    "Please send me the details.",
    "Let us talk about it tomorrow.",
    "Yes, go ahead.",
)


class Inbox(Kind):
    """Do one thing with one mail, found by its sender and its subject."""

    name = "inbox"

    def make(self, words: Words, stream: random.Random) -> Draft:
        """Five to nine mails of few people."""
        people, topics = stream.sample(words.first_names, 4), stream.sample(words.topics, 4)
        pairs = [[person, topic] for person in people for topic in topics]
        mails = stream.sample(pairs, stream.randint(5, 9))
        number = stream.randrange(len(mails))
        person, topic = mails[number]
        action = stream.choice(["Delete", "Star", "Forward", "Reply"])
        wanted = {"mail": str(number), "action": action, "to": "", "text": ""}
        said = f"{action} the mail from {person} about the {topic}."
        if action == "Forward":
            wanted["to"] = f"{stream.choice(words.surnames)}@example.org".lower()
            said = f"{said[:-1]} to {wanted['to']}."
        elif action == "Reply":
            wanted["text"] = stream.choice(REPLIES)
            said = f'Reply to the mail from {person} about the {topic}: "{wanted["text"]}"'
        return Draft(said, {"mails": mails}, wanted)

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        """The box, one mail, or one of the two forms for it."""
        mails = site.data["mails"]
        if "mail" not in request.query:
            rows = [
                [person, html.link(f"The {topic}", f"/mail?mail={at}")]
                for at, (person, topic) in enumerate(mails)
            ]
            return "Inbox", html.table(["From", "Subject"], rows)
        number = request.query["mail"]
        person, topic = mails[int(number)]
        send = [html.hidden("mail", number), html.hidden("action", request.path[1:].title())]
        if request.path == "/forward":
            return "Forward", html.form("/send", *send, html.field("To", "to"), html.button("Send"))
        if request.path == "/reply":
            return "Reply", html.form(
                "/send", *send, html.area("Text", "text"), html.button("Send")
            )
        links = [html.link(name, f"/{name.lower()}?mail={number}") for name in ("Reply", "Forward")]
        buttons = [html.button(name, "action", name) for name in ("Star", "Delete")]
        body = f"<p>From {person}</p><p>Here is something about the {topic}. Best, {person}</p>"
        form = html.form("/send", html.hidden("mail", number), *buttons)
        return f"The {topic}", f"{body}<nav>{' '.join(links)}</nav>{form}"

    def post(self, site: FormSite, request: Request) -> str:
        """Record the action on a mail."""
        site.send({"mail": "", "action": "", "to": "", "text": "", **dict(request.form)})
        return "/done"

    def way(self, look: Look, draft: Draft) -> Way:
        """Open the mail and do it."""
        wanted = draft.wanted
        yield "click", look.valued(f"/mail?mail={wanted['mail']}")
        if wanted["action"] in ("Star", "Delete"):
            yield "click", look("button", wanted["action"])
            return
        yield "click", look("link", wanted["action"])
        label, value = ("To", wanted["to"]) if wanted["to"] else ("Text", wanted["text"])
        yield "fill", look("textbox", label), value
        yield "click", look("button", "Send")
