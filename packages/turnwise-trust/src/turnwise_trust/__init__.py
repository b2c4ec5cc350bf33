"""Questions of trust: may an environment be trained on, should it be, why does it not learn."""
