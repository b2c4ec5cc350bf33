"""Kinds of tasks with an account: sign in, change settings in tabs, and a box of mails."""

import random
from urllib.parse import quote

from turnwise_environments.tools.browser.sites import Request
from turnwise_environments.web import Look
from turnwise_environments.web_forms import html
from turnwise_environments.web_forms.kinds.base import LEVELS, Draft, FormSite, Kind, Way, Words

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


class Login(Kind):
    """Sign in, then press a button; a wrong password can be tried again."""

    name = "login"

    def make(self, words: Words, stream: random.Random) -> Draft:
        user = f"{stream.choice(words.first_names)}{stream.randint(10, 99)}".lower()
        password = "".join(stream.choices(LETTERS, k=6))
        labels = stream.sample(words.verbs, stream.randint(4, 6))
        action = stream.choice(labels)
        prompt = f"Sign in as {user} with the password {password}, then press {action}."
        data = {"labels": labels, "user": user, "password": password}
        return Draft(prompt, data, {"user": user, "pressed": action})

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        if site.user:
            buttons = [html.button(label, "pressed", label) for label in site.data["labels"]]
            return "Account", f"<p>Signed in as {site.user}.</p>{html.form('/press', *buttons)}"
        wrong = "<p>User name or password is wrong.</p>" if request.path == "/wrong" else ""
        return "Sign in", wrong + html.form(
            "/signin",
            html.field("User name", "user"),
            html.field("Password", "password", "password"),
            html.button("Sign in"),
        )

    def post(self, site: FormSite, request: Request) -> str:
        given = dict(request.form)
        if request.path == "/press" and site.user:
            site.send({"user": site.user, "pressed": given.get("pressed", "")})
            return "/done"
        own = (site.data["user"], site.data["password"])
        if (given.get("user"), given.get("password")) != own:
            return "/wrong"
        site.user = site.data["user"]
        return "/account"

    def way(self, look: Look, draft: Draft) -> Way:
        yield "fill", look("textbox", "User name"), draft.data["user"]
        yield "fill", look("password", "Password"), draft.data["password"]
        yield "click", look("button", "Sign in")
        yield "click", look("button", draft.wanted["pressed"])


class Settings(Kind):
    """Change one or two settings of one tab, and leave the others as they are."""

    name = "settings"

    def make(self, words: Words, stream: random.Random) -> Draft:
        names = iter(stream.sample(words.settings, 20))
        tabs = {
            next(names): {next(names): stream.choice(LEVELS) for _ in range(stream.randint(3, 4))}
            for _ in range(stream.randint(3, 4))
        }
        tab = stream.choice(list(tabs))
        chosen = stream.sample(list(tabs[tab]), stream.randint(1, 2))
        changes = {
            name: stream.choice([level for level in LEVELS if level != tabs[tab][name]])
            for name in chosen
        }
        said = " and ".join(f"{name} to {level}" for name, level in changes.items())
        prompt = f"In the settings of {tab}, set {said}, and save."
        return Draft(prompt, {"tabs": tabs}, {"tab": tab, **tabs[tab], **changes})

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        tabs = site.data["tabs"]
        tab = request.query.get("tab", next(iter(tabs)))
        links = " ".join(html.link(name, f"/settings?tab={quote(name)}") for name in tabs)
        fields = [html.select(name, name, LEVELS, level) for name, level in tabs[tab].items()]
        body = html.form("/save", html.hidden("tab", tab), *fields, html.button("Save"))
        return f"Settings: {tab}", f"<nav>{links}</nav>{body}"

    def way(self, look: Look, draft: Draft) -> Way:
        tab = draft.wanted["tab"]
        yield "click", look("link", tab)
        for name, level in draft.data["tabs"][tab].items():
            if draft.wanted[name] != level:
                yield "select", look("select", name), draft.wanted[name]
        yield "click", look("button", "Save")


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
        site.send({"mail": "", "action": "", "to": "", "text": "", **dict(request.form)})
        return "/done"

    def way(self, look: Look, draft: Draft) -> Way:
        wanted = draft.wanted
        yield "click", look.valued(f"/mail?mail={wanted['mail']}")
        if wanted["action"] in ("Star", "Delete"):
            yield "click", look("button", wanted["action"])
            return
        yield "click", look("link", wanted["action"])
        label, value = ("To", wanted["to"]) if wanted["to"] else ("Text", wanted["text"])
        yield "fill", look("textbox", label), value
        yield "click", look("button", "Send")
