"""Kinds of tasks with a sign-in, or tabs: an account to sign in to, settings to change."""

import random
from urllib.parse import quote

from turnwise_environments.tools.browser.sites import Request
from turnwise_environments.web import Look
from turnwise_environments.web_forms import html
from turnwise_environments.web_forms.kinds.base import Draft, FormSite, Kind, Way
from turnwise_environments.web_forms.words import LEVELS, Words

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


class Login(Kind):
    """Sign in, then press a button; a wrong password can be tried again."""

    name = "login"

    def make(self, words: Words, stream: random.Random) -> Draft:
        """A user, a password, four to six buttons."""
        user = f"{stream.choice(words.first_names)}{stream.randint(10, 99)}".lower()
        password = "".join(stream.choices(LETTERS, k=6))
        labels = stream.sample(words.verbs, stream.randint(4, 6))
        action = stream.choice(labels)
        prompt = f"Sign in as {user} with the password {password}, then press {action}."
        data = {"labels": labels, "user": user, "password": password}
        return Draft(prompt, data, {"user": user, "pressed": action})

    def get(self, site: FormSite, request: Request) -> tuple[str, str]:
        """The account for a user who has signed in, else the form to sign in."""
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
        """Sign in, or press a button of the account after that."""
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
        """Sign in, and press it."""
        yield "fill", look("textbox", "User name"), draft.data["user"]
        yield "fill", look("password", "Password"), draft.data["password"]
        yield "click", look("button", "Sign in")
        yield "click", look("button", draft.wanted["pressed"])


class Settings(Kind):
    """Change one or two settings of one tab, and leave the others as they are."""

    name = "settings"

    def make(self, words: Words, stream: random.Random) -> Draft:
        """Three or four tabs of three or four settings."""
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
        """A tab; the first one at first."""
        tabs = site.data["tabs"]
        tab = request.query.get("tab", next(iter(tabs)))
        links = " ".join(html.link(name, f"/settings?tab={quote(name)}") for name in tabs)
        fields = [html.select(name, name, LEVELS, level) for name, level in tabs[tab].items()]
        body = html.form("/save", html.hidden("tab", tab), *fields, html.button("Save"))
        return f"Settings: {tab}", f"<nav>{links}</nav>{body}"

    def way(self, look: Look, draft: Draft) -> Way:
        """Open the tab, change what differs, and save."""
        tab = draft.wanted["tab"]
        yield "click", look("link", tab)
        for name, level in draft.data["tabs"][tab].items():
            if draft.wanted[name] != level:
                yield "select", look("select", name), draft.wanted[name]
        yield "click", look("button", "Save")
