"""Readers of logs, a file for each format, and which of them reads a file or a folder."""
