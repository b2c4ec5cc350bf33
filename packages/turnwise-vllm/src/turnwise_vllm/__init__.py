"""The engine over servers of vLLM, in an environment of their own or on other machines."""
