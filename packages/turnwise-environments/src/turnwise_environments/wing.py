"""The wing: environments, scaffolds, parts of rewards, a tool, embeddings, five commands."""

from pathlib import Path

from turnwise.wings import Wing

ENVIRONMENTS = {
    "bandit": (
        "games.bandit:Bandit",
        "pull one of two named arms: a sure one, and one that sometimes pays more",
    ),
    "code": (
        "code.environment:Code",
        "write a function, judged by hidden calls in a sandbox; or repair QuixBugs' programs",
    ),
    "deep_research": (
        "deep_research.environment:DeepResearch",
        "find the one class that meets several conditions, by browsing Python's documentation",
    ),
    "desk": (
        "desk.environment:ServiceDesk",
        "serve a shop's customers by a policy: a database to read and write, a user",
    ),
    "frozen_lake": (
        "games.frozen_lake:FrozenLake",
        "cross a frozen lake shown as text (gymnasium's); needs the extra games",
    ),
    "function_calling": (
        "function_calling.environment:FunctionCalling",
        "do what a user asks with a handful of typed tools, over several requests",
    ),
    "gymnasium": (
        "adapters.gymnasium:Gymnasium",
        "any environment of gymnasium with discrete actions, as text; needs the extra games",
    ),
    "harbor": (
        "adapters.harbor:Harbor",
        "do the task folders of Harbor and Terminal-Bench that hold in the sandbox",
    ),
    "inspect": (
        "adapters.inspect_ai:Inspect",
        "dataset and scorer of one of Inspect's tasks, with tools; needs the extra inspect",
    ),
    "joint": (
        "joint:Joint",
        "several environments in one run, with a share and budgets for each",
    ),
    "long_walk": (
        "games.long_walk:LongWalk",
        "find the way through 300 rooms, a tool call each, by a rule that is given once",
    ),
    "mathematics": (
        "mathematics.environment:Mathematics",
        "solve word problems and sums with a calculator, Python or neither; or GSM8K's format",
    ),
    "multi_tool": (
        "multi_tool.environment:MultiTool",
        "answer questions that need a search, a calculation, both, or neither",
    ),
    "openenv": (
        "adapters.openenv:OpenEnv",
        "act in any environment behind an OpenEnv server; needs the extra openenv",
    ),
    "own_desk": (
        "desk.own:OwnDesk",
        "serve your own customers: tau-bench's task format, your tables, tools and policy",
    ),
    "proofs": (
        "proofs.environment:Proofs",
        "prove theorems of propositional logic in natural deduction, with a checker",
    ),
    "reasoning_gym": (
        "adapters.reasoning_gym:ReasoningGym",
        "questions of reasoning-gym's datasets; needs the extra reasoning-gym",
    ),
    "recorded_calls": (
        "function_calling.recorded:RecordedCalls",
        "make the next tool calls of recorded dialogues: ToolRL's data, or yours in its format",
    ),
    "repair": (
        "repair.environment:Repair",
        "repair a git repository with shell and file tools: made ones, SWE-bench's, QuixBugs'",
    ),
    "shell": (
        "shell.environment:Shell",
        "change a folder, or ask it, in a shell: made tasks, or AgentBench's OS interaction",
    ),
    "shop": (
        "shop.environment:Shop",
        "find and buy what a request describes: WebShop's style and reward, made-up products",
    ),
    "shop_web": (
        "shop.web:ShopWeb",
        "find and buy products on the web pages of shop: plain, or in Chromium",
    ),
    "sokoban": (
        "games.sokoban:Sokoban",
        "push boxes onto targets: small boards made here, or Boxoban's files",
    ),
    "sql": (
        "sql.environment:SqlEnvironment",
        "ask tables or change them in SQL: made ones, or AgentBench's dbbench",
    ),
    "textworld": (
        "adapters.textworld:TextWorld",
        "text adventures of TextWorld, made from seeds or yours; needs the extra textworld",
    ),
    "verifiers": (
        "adapters.verifiers:Verifiers",
        "tasks of one turn from a taskset of verifiers; needs the extra verifiers",
    ),
    "web_forms": (
        "web_forms.environment:WebForms",
        "fill in forms and find the way on small web sites: plain, or in Chromium",
    ),
}
"""The place of each environment in this package, and a line about it."""

RECIPES = Path(__file__).parent / "recipes"
REWARDS = "conduct answers unsupervised shaping toolrl mathematics proofs"
"""Modules that declare parts of rewards."""

WING = Wing(
    commands={
        "environments": "turnwise_environments.measuring:environments",
        "inject": "turnwise_environments.inject:inject",
        "play": "turnwise_environments.play_command:play",
        "rewards": "turnwise_environments.reward_listing:rewards",
        "serve-environment": "turnwise_environments.serve:serve_environment",
    },
    parts={
        "environment": {
            name: (f"turnwise_environments.{place}", line)
            for name, (place, line) in ENVIRONMENTS.items()
        },
        "scaffold": {
            "code": (
                "turnwise_environments.scaffolds.code:CodeScaffold",
                "Code as action: a turn is a thought and Python between <code> and </code>.",
            ),
            "react": (
                "turnwise_environments.scaffolds.react:ReActScaffold",
                "ReAct's text: Thought, Action and Action Input; Observation; Final Answer.",
            ),
        },
        "tool": {
            "calculate": (
                "turnwise_environments.tools.calculator:calculate",
                "one line of exact arithmetic",
            )
        },
        "index": {
            "embedding": (
                "turnwise_environments.retrieval:make_index",
                "passages near in meaning, by an endpoint's vectors",
            )
        },
    },
    reward_parts=tuple(f"turnwise_environments.rewards.{name}" for name in REWARDS.split()),
    files={"recipe": {path.stem: path for path in RECIPES.glob("*.toml")}},
)
