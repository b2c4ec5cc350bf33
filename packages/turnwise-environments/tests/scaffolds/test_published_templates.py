"""The script that holds published chat templates against the scaffold, with our own templates."""

import pytest

from chat_template_samples import REFUSED, TEMPLATES
from scripts.chat_templates import BUT_FOR_THOUGHTS, Row, check, count, table


def published(template: str) -> str:
    """The template with the names that tokens have in published ones."""
    return template.replace("<x>", "<|im_end|>").replace("<e>", "<|im_start|>")


@pytest.mark.long
def test_what_the_table_says_of_a_template() -> None:
    row, differs = check(published(TEMPLATES["json"]))
    assert row == Row("JSON in `<tool_call>`", "several", "stays", "")
    assert not any(differs.values())
    refused, _ = check(REFUSED["line 2: first a task"])
    assert refused.found == "refused: line 2: first a task"
    assert "| a, b | JSON in `<tool_call>` | several | stays |  |\n" in table({"a": row, "b": row})


def test_a_template_that_differs_in_one_conversation_does_not_count_as_the_same() -> None:
    """The name of a conversation begins as the sentence of what is allowed."""
    found = ("", BUT_FOR_THOUGHTS, "thoughts", "thoughts before words, answers", "hard")
    rows = {str(n): Row("JSON", "one", "stays", one) for n, one in enumerate(found)}
    assert count(rows) == "5 templates, 2 with the same ids"
