"""Tasks with typed tools of their own: small applications with a state, and recorded dialogues."""
