"""Synthesis of data: items that a method proposes, checked, kept once, none of them held out."""
