"""Web forms and navigation in MiniWoB's style, made by program."""
