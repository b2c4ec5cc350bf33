"""Chat templates in the shapes that model families have, of our own, each with its added tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

BEGUN = "{% if add_generation_prompt %}%s{% endif %}"
TOOLS = "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"


def chatml(calls: str, thoughts: str = "", tools: str = TOOLS, begun: str = "") -> str:
    """ChatML with tools in front; what a turn of the model holds before and after its content."""
    return (
        f"<s>{tools}{{% for m in messages %}}<e>{{{{ m.role }}}}\n"
        f"{{% if m.role == 'assistant' %}}{thoughts}{{{{ m.content }}}}{calls}"
        "{% else %}{{ m.content }}{% endif %}<x>\n{% endfor %}"
        + BEGUN.replace("%s", f"<e>assistant\n{begun}")
    )


def each_call(form: str) -> str:
    return "{% for c in m.tool_calls or [] %}" + form + "{% endfor %}"


JSON_CALLS = each_call(
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}\n</tool_call>"
)
NAMED_CALLS = (
    "{% if m.tool_calls %}<calls>"
    + each_call(
        "<call>function<sep>{{ c.function.name }}\n```json\n{{ c.function.arguments }}\n```</call>"
    )
    + "</calls>{% endif %}"
)
TAGGED_CALLS = each_call(
    "<call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}"
    "</arg_key>\n<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</call>"
)
DSML_CALLS = (
    "{% if m.tool_calls %}\n\n<calls>\n"
    + each_call(
        '<call name="{{ c.function.name }}">\n{% for k, v in c.function.arguments.items() %}'
        "<sep name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">"
        "{{ v if v is string else v | tojson }}</sep>\n{% endfor %}</call>\n"
    )
    + "</calls>{% endif %}"
)
PYTHON_CALLS = (
    "{% if m.tool_calls %}<calls>["
    + each_call(
        "{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}="
        "{{ v | tojson }}{% if not loop.last %}, {% endif %}{% endfor %})"
        "{% if not loop.last %}, {% endif %}"
    )
    + "]</calls>{% endif %}"
)
THOUGHTS = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
LATE_THOUGHTS = (
    "{% if m.reasoning_content and loop.index0 > ns.asked %}<think>\n{{ m.reasoning_content }}\n"
    "</think>\n\n{% endif %}"
)
ASKED = (
    "{% set ns = namespace(asked=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}"
)
LLAMA = (
    "<s>{% for m in messages %}{% if m.role == 'system' %}<h>system</h>{{ m.content | trim }}<x>"
    "{% elif m.role == 'user' %}<h>user</h>{% if tools and loop.first %}{{ tools | tojson }}"
    "{% endif %}{{ m.content | trim }}<x>{% elif m.role == 'tool' %}<h>ipython</h>"
    "{{ m.content | tojson }}<x>{% elif m.tool_calls %}{% if m.tool_calls | length > 1 %}"
    "{{ raise_exception('one call at once') }}{% endif %}<h>assistant</h>"
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": '
    "{{ m.tool_calls[0].function.arguments | tojson }}}<x>{% else %}<h>assistant</h>"
    "{{ m.content | trim }}<x>{% endif %}{% endfor %}" + BEGUN.replace("%s", "<h>assistant</h>")
)
INST = (
    "<s>{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}"
    "{% elif m.role == 'user' %}{% if not loop.first and messages[loop.index0 - 1].role in "
    "('user', 'tool') %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if loop.first and tools %}[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}"
    "[INST] {{ m.content }}[/INST]{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}"
    "{{ raise_exception('ids have 9 letters') }}{% endif %}[RESULT]{{ m.tool_call_id }} "
    "{{ m.content }}[/RESULT]{% elif m.tool_calls %}[CALLS]["
    '{% for c in m.tool_calls %}{{ \'{"name": "\' }}{{ c.function.name }}'
    '{{ \'", "arguments": \' }}{{ c.function.arguments | tojson }}{{ \', "id": "\' }}{{ c.id }}'
    "{{ '\"}' }}{% if not loop.last %}, {% endif %}{% endfor %}]<x>"
    "{% else %} {{ m.content }}<x>{% endif %}{% endfor %}"
)
NEXT_ROLE = (
    "<s>"
    + TOOLS
    + "{% for m in messages %}<{{ m.role }}>{{ '\n' + m.content }}{% if m.tool_calls %}"
    + TAGGED_CALLS
    + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
IN_ONE_TURN = (
    "<s>" + TOOLS + "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content }}</h>{% else %}"
    "{% if not (loop.index0 and messages[loop.index0 - 1].role == 'tool') %}<e>{{ m.role }}\n"
    "{% endif %}"
    + THOUGHTS
    + each_call(
        "<call>call:{{ c.function.name }}{{ '{' }}{% for k, v in c.function.arguments.items() %}"
        "{{ k }}:{% if v is string %}<sep>{{ v }}<sep>{% else %}{{ v | tojson }}{% endif %}"
        "{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}</call>"
    )
    + "{% if m.tool_calls %}<tool>{% else %}{{ m.content }}<x>\n{% endif %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt and messages[-1].role != 'tool' %}<e>assistant\n"
    "{% endif %}"
)
CHANNELS = (
    "<s>"
    + TOOLS
    + "{% set ns = namespace(name='') %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if m.thinking and (m.tool_calls or loop.last) %}<|start|>assistant<|channel|>analysis"
    "<|message|>{{ m.thinking }}<|end|>{% endif %}<|start|>assistant{% if m.tool_calls %}"
    "{% set ns.name = 'functions.' + m.tool_calls[0].function.name %} to={{ ns.name }}<|channel|>"
    "commentary json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>{% else %}"
    "<|channel|>final<|message|>{{ m.content }}"
    "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{% endif %}"
    "{% else %}<|start|>{{ ns.name + ' to=assistant<|channel|>commentary' if m.role == 'tool' else "
    "m.role }}<|message|>{{ m.content | tojson if m.role == 'tool' else m.content }}<|end|>"
    "{% endif %}{% endfor %}" + BEGUN.replace("%s", "<|start|>assistant")
)
TEMPLATES = {
    "json": chatml(JSON_CALLS, THOUGHTS),
    "json without thoughts": chatml(JSON_CALLS),
    "named": chatml(NAMED_CALLS),
    "tagged": chatml(TAGGED_CALLS, THOUGHTS),
    "dsml": chatml(DSML_CALLS, THOUGHTS),
    "python": chatml(PYTHON_CALLS),
    "in one turn": IN_ONE_TURN,
    "one call": LLAMA,
    "inst": INST,
    "channels": CHANNELS,
    "ends with the next role": NEXT_ROLE,
    "opened": chatml(
        JSON_CALLS, "<think>\n{{ m.reasoning_content }}\n</think>\n\n", begun="<think>\n"
    ),
    "tools in words": chatml("", tools=""),
    "calls in words": chatml("", tools="Write <tool_call>. " + TOOLS),
    "tools unseen": chatml(NAMED_CALLS, tools=""),
    "late thoughts": ASKED + chatml(JSON_CALLS, LATE_THOUGHTS),
}
"""Templates that only append, but for thoughts at a user's words ("late thoughts", "channels")."""
RESPONSES: dict[str, dict[str, Any]] = {
    "channels": {
        "fields": {"content": {"open": "<|channel|>final<|message|>", "close": "<|end|>"}}
    },
    "in one turn": {
        "start_anchor": ["<e>assistant\n", "</h>"],
        "fields": {
            "thinking": {"open": "<think>", "close": "</think>"},
            "tool_calls": {
                "open_pattern": r"<call>call:(?P<name>\w+)",
                "close": "</call>",
                "repeats": True,
                "content": "json",
                "content_args": {"unquoted_keys": True, "string_delims": [["<sep>", "<sep>"]]},
                "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
            },
            "content": {"close": ["<x>", "<tool>"]},
        },
    },
    "opened": {
        "start_anchor": "<e>assistant\n<think>\n",
        "fields": {
            "reasoning_content": {"open_pattern": r"(?=[\s\S]*?</think>)", "close": "</think>"},
            "tool_calls": {
                "open": "<tool_call>",
                "close": "</tool_call>",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close": "<x>"},
        },
    },
}
"""Response templates of tokenizers with these templates; without its own the first one's calls are
in a form that is not read."""
CHANGED = {
    "a thought left out": chatml(JSON_CALLS, begun="<think>\n").replace(
        "{{ m.content }}", "{{ m.content.split('</think>')[-1] }}", 1
    ),
    "tools moved": ASKED
    + INST.replace("loop.first and tools", "loop.index0 == ns.asked and tools"),
    "a system message moved": chatml(JSON_CALLS).replace(
        "{{ m.content }}{% endif %}",
        "{{ m.content }}{{ messages | length if m.role == 'system' }}{% endif %}",
    ),
}
REFUSED = {
    "it leaves out, repeats or changes": "{{ messages[0].content }}<x>",
    "no token ends a turn": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    + BEGUN.replace("%s", "assistant: "),
    "line 2: first a task": "\n{{ raise_exception('first a task') }}",
    "line 1: 'functions' is undefined; scaffold.options.template may say what it is": (
        "{{ functions[0] }}"
    ),
    "line 1: .* by zero": "{{ messages | length // 0 }}",
    "line 3: ": "<s>\n\n{{ messages[0].content.nothing.more }}",
    "begins otherwise than a new one": chatml(JSON_CALLS, begun="Well: "),
}
MARKS = (
    *("<x>", "<s>", "<e>", "<h>", "</h>", "<tool_call>", "</tool_call>", "<think>", "</think>"),
    *("<call>", "</call>", "<calls>", "</calls>", "<sep>", "[INST]", "[/INST]", "[CALLS]"),
    *("[TOOLS]", "[/TOOLS]", "[RESULT]", "[/RESULT]", "<user>", "<assistant>", "<tool>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
)
WORDS = ["The answer is 42. assistant\n\nuser\nWho is it? \n  12 km  \n", '{"name": "lookup"}'] * 4


def merging_tokenizer(
    template: str, marks: Sequence[str] = MARKS, response_template: Mapping[str, Any] | None = None
) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens may go over the edges of messages, with the templates."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(marks), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(WORDS, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=marks[0])
    made.chat_template, made.name_or_path = template, "of our own"
    made.response_template = response_template
    return made
