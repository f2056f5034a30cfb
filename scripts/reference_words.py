"""What the reference pages say and no code knows: the meaning of reasons, codes and scopes, and examples of rules."""

# For each domain: what a scope is, and an example of a rule.
SCOPES = {
    "fs": ("an absolute path and everything below it, or `*`", "`fs:read:/srv/data`"),
    "network": ("`[method@][protocol://]host[:port]`", "`network:https:get@*.github.com`"),
    "process": ("the name of a program, an absolute path, or `*`", "`process:exec:git`"),
    "env": ("a variable, or `*`", "`env:read:PATH`"),
    "secret": ("a reference, `prefix/*` by whole segments, or `*`", "`secret:read:github/token`"),
    "storage": ("`tool-private`, `session`, `personality` or `*`", "`storage:write:session`"),
    "tool": ("the name of a tool, or `*`", "`tool:call:http_get`"),
    "socket": ("the exact path of a unix socket of the host; `*` in denies alone", "`socket:connect:/run/docker.sock`"),
    "connector": ("the name of a connector, or `*`", "`connector:use:github`"),
}

EXAMPLES = (
    "network:https:GET@API.Example.com.",
    "network:*:get",
    "network:read:https://api.example.com",
    "network:http:0x7f.1:8080",
    "fs:read:/srv//data/./",
    "fs:write:${workdir}/out",
    "secret:read:github/*",
    "process:*:git",
)

NOT_RULES = (
    "fs:read:data",
    "fs:read:/srv/../etc",
    "fs:read:/srv/*/logs",
    "fs:raed:/srv",
    "network:https:*.0.0.1",
    "network:https:api.*.com",
    "network:https:user@api.example.com",
    "network:https:api.example.com:0",
    "files:read:/srv",
)

REASONS = {
    "UNKNOWN_TOOL": "The policy does not know a tool of this name.",
    "TOOL_NOT_IN_BUNDLE": "This agent may not call the tool: neither `tools` nor an assigned bundle admits it.",
    "INPUT_INVALID": "The arguments, or a request to a handle, are not well-formed or do not fit the type hints.",
    "ARGUMENT_NOT_ALLOWED": "An argument breaks a rule under `args`.",
    "SIDE_EFFECT_EXCEEDED": "The class is stronger than allowed, or the tool needs what its class does not permit.",
    "CONNECTOR_NOT_ALLOWED": "A connector, or its version, is not on every list that must have it.",
    "SANDBOX_NOT_DECLARED": "No file and no declaration states a level for the tool, or a looser one than is allowed.",
    "NATIVE_NOT_ALLOWED": "The tool would run in the host process, and `native` does not name it.",
    "DECISION_FAILED": "Something failed while the call was decided, so it was refused.",
    "FLOW_ORIGIN": "The session has read untrusted text, and a value does not come from where `flow:` says.",
    "FLOW_SECRET": "The session has read a secret, and the call could pass it to somebody who may not read it.",
    "FLOW_NOT_ASKED_FOR": "The words of the task do not ask for the call, after the session has read untrusted text.",
    "CALL_ID_REUSED": "The id of the call was used for a call with other arguments within 24 hours.",
    "CALL_UNKNOWN": "A call with this id began, and how it ended is not known. It is not run again.",
    "APPROVAL_REQUIRED": "A person must approve first, and nobody has answered yet.",
    "APPROVAL_DENIED": "A person said no.",
    "APPROVAL_EXPIRED": "The question was not answered, or the answer not used, in time.",
    "BUDGET_EXCEEDED": "The call would spend more calls or money than a budget has left.",
    "LEDGER_UNAVAILABLE": "The ledger could not be written. Nothing ran, unless the error says that the tool did.",
    "BACKEND_MISSING": "What was asked for is allowed, and the gate has nothing that could do it, or it does not work.",
    "TOOL_NOT_AVAILABLE": "The gate does not have the tool, its `available` check says no, or its server does not run.",
    "HOST_NOT_ALLOWED": "The host, port, protocol or method is not held.",
    "ADDRESS_NOT_ALLOWED": "The name is allowed and resolves to an address that is not: private, loopback, metadata.",
    "PATH_NOT_REACHABLE": "The path is not held, or leads elsewhere through a link, or is no regular file.",
    "SECRET_NOT_DECLARED": "The secret is not held.",
    "BINARY_NOT_ALLOWED": "The program is not held.",
    "ENV_NOT_ALLOWED": "The variable is not held.",
    "STORAGE_NOT_DECLARED": "The kind of store is not held.",
    "RESOLVE_FAILED": "The name has no address.",
    "SOCKET_NOT_ALLOWED": "A unix socket of the host outside of what is allowed.",
    "CONNECT_FAILED": "The connection could not be made, or broke.",
    "LIMIT_TIME": "The call, request or program took longer than `wall_seconds`, or its own timeout.",
    "LIMIT_SIZE": "What was read or stored is larger than its limit.",
    "LIMIT_REDIRECTS": "A request was redirected more than five times.",
    "LIMIT_CPU": "`cpu_seconds` are used up.",
    "LIMIT_MEMORY": "The tool or program needed more than `memory_mb`.",
    "LIMIT_OUTPUT": "The result, or the output of a program, is larger than it may be.",
    "LIMIT_FILES": "More files are open than `open_files`.",
    "LIMIT_PROCESSES": "More threads or processes run than `processes`.",
    "LIMIT_FILE_SIZE": "One file grew larger than `file_mb`.",
    "LIMIT_DISK": "The scratch directory grew larger than `scratch_mb`.",
    "LIMIT_HOST_MEMORY": "The call would cost your own process more than `host_memory_mb`.",
    "LIMIT_HOST_FILES": "The call would open more than `host_files` in your own process.",
    "LIMIT_WAITING": "The tool does not read its answers, and more than `waiting_kb` of them wait.",
    "LIMIT_HEADERS": "A request has more headers than `request_headers`.",
    "LIMIT_PATHS": "The call would make or write more files and directories than `written_paths`.",
    "LIMIT_FUEL": "A WASM tool used up its `fuel`; the same call ends at the same point each time.",
    "LIMIT_STACK": "A WASM tool recursed too deeply.",
    "CLOSED_FILE_REPLACED": "A closed file was replaced outside while a program ran, and the program reached it.",
    "TOOL_FAILED": "The tool raised an exception, or returned something that is no plain data.",
    "TOOL_CRASHED": "The process of the tool ended without an answer.",
    "FROZEN": "An operator stopped all calls with `gate.freeze()`.",
    "SESSION_ENDED": "The session is over, also while a call of it ran; so are the handles of a call that has ended.",
    "MANIFEST_CHANGED": "The policy is not the one that was pinned, locked or asked about.",
    "SANDBOX_UNAVAILABLE": "This machine cannot build the walls of the level, or the tool cannot run behind them.",
    "INTERRUPTED": "The caller ended the call before its tool ran.",
}

CODES = {
    "ok": "The tool returned; `value` is what it returned.",
    "denied": "Policy, a person or a budget said no, before the tool ran.",
    "not_available": "The tool could not run here: it is unknown, or something that it needs is missing.",
    "input_invalid": "The arguments do not fit.",
    "execution_failed": "The tool ran and did not finish well: it was refused a use, passed a limit, or failed.",
    "timed_out": "The time of the call was up.",
}

# The members that are for users, of classes that have others which only licet itself calls.
SHOWN = {
    "Capability": ("domain", "action", "scope", "port", "parse", "defers", "covers", "meet"),
    "CapabilitySet": ("has", "lacks", "verdict", "allow", "deny", "digest", "expand"),
    "Gate": (
        *("__init__", "load", "session", "warm", "reload", "misfits", "not_admitted", "frozen", "freeze", "thaw"),
        *("tools", "workdir"),
    ),
    "Manifest": ("from_data", "digest", "agent", "version", "app", "admissions", "ceiling", "max_effect", "meet"),
    "Refused": ("explain",),
    "Session": ("call", "call_many", "available", "delegate", "end"),
    "Tool": ("name", "needs", "optional", "effect", "sandbox", "description", "schema", "digest", "spec"),
    "ToolSpec": ("name", "needs", "optional", "effect", "sandbox", "connector", "cost_usd", "description", "digest"),
    "Use": ("domain", "action", "method", "effect", "scope", "port", "target", "parse"),
}

# What a caller writes for an object that is called itself.
CALLED = {"Fetch": "ctx.fetch", "SyncFetch": "ctx.fetch"}

# Hooks of coding agents: what licet does with a call of each kind of tool, in the order of the pages.
HOOK_KINDS = {
    "shell": "the same text runs behind walls, with what the policy grants to programs.",
    "typed": "passes: the shell line that it is for runs behind walls.",
    "read": "each path needs `fs:read`, with links followed.",
    "search": "each directory needs `fs:read`. If something below it is denied, the call is refused.",
    "write": "each path needs `fs:write`, with links followed.",
    "delete": "each path needs `fs:delete`, with links followed.",
    "patch": "each file that the patch names needs `fs:write`, and `fs:delete` where it deletes or moves the file.",
    "fetch": "each URL needs its GET under `network`.",
    "service": "refused unless the policy names the tool: no argument says where the data goes.",
    "code": "refused unless the policy names the tool. Then it runs without walls.",
    "subagent": "passes. Each call of the subagent is decided as one of a delegate.",
    "plain": "passes, with a receipt.",
}

HOOK_TOOLS = (
    "A tool that is not listed is refused until the policy declares it. A tool of an MCP server passes if its server "
    "is licet's gateway with this policy, and is refused otherwise. Arguments that can be read in two ways are "
    "refused; so is an argument that licet does not know if it looks like a path or an address."
)

HOOK_SETTINGS = (
    "No call of an agent, and no program behind its walls, can write what is listed as closed, whether it is there or "
    "not, and whichever agent it configures."
)

HOOK_MOMENTS = {
    "session begins": "settles the policy, and says if there is none",
    "prompt": "nothing",
    "before a call": "decides",
    "before a prompt": "nothing",
    "after a call": "closes the receipt",
    "subagent begins": "nothing",
    "subagent ends": "nothing",
    "session ends": "closes receipts that are open as `unknown`, and removes the scratch of the session",
}

HOOK_SCOPES = {
    "user": "you",
    "project": "a project",
    "local": "you, in a project",
    "managed": "the machine: only root writes it",
}

HOOK_SEEN = {"run": "tried", "read": "read in its program", "documented": "from its documentation, **not tried**"}

LINES_KEEP = {
    "nothing": "nothing is kept: each line starts anew",
    "directory": "the directory is kept",
    "shell": "the state of the shell is kept: directory, variables, functions, options",
}
