"""An MCP server over stdio, of the standard library alone, that does what its argument tells it, well or badly."""

import json
import os
import subprocess
import sys
import time

HABITS = json.loads(sys.argv[1])
ANYTHING = {"type": "object"}
READS = {"readOnlyHint": True}
ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = HABITS.get("tools") or [
    {"name": "echo", "description": "Say it again.", "annotations": READS, "inputSchema": ECHO},
    {"name": "die", "description": "Ends in mid-call.", "inputSchema": ANYTHING},
    {"name": "flaky", "description": "Dies the first time.", "annotations": READS, "inputSchema": ANYTHING},
    {"name": "big", "description": "Much text.", "inputSchema": ANYTHING},
    {"name": "sleep", "description": "Never answers.", "inputSchema": ANYTHING},
    {"name": "nudge", "description": "Reports progress for ever.", "inputSchema": ANYTHING},
    {"name": "raw", "description": "Answers with given bytes.", "inputSchema": ANYTHING},
    {"name": "grow", "description": "Adds a tool.", "inputSchema": ANYTHING},
    {"name": "blocks", "description": "All kinds of content.", "inputSchema": ANYTHING},
    {"name": "slowly", "description": "Works with progress.", "inputSchema": ANYTHING},
    {"name": "ask", "description": "Asks the person.", "inputSchema": ANYTHING},
    {"name": "roots", "description": "Asks for the folders.", "inputSchema": ANYTHING},
    {"name": "sample", "description": "Asks the model.", "inputSchema": ANYTHING},
]
QUESTION = {
    "message": "Which colour?",
    "mode": "form",
    "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}
WONDER = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "What is tea?"}}],
    "systemPrompt": "Be brief.",
    "maxTokens": 50,
}
BLOCKS = [
    {"type": "text", "text": "words"},
    {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
    {"type": "image", "mimeType": "image/png", "data": "/9j/4AA="},
    {"type": "image", "mimeType": "image/x-../\0odd", "data": "aGVsbG8="},
    {"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8="},
    {"type": "resource", "resource": {"uri": "mem://a", "text": "inside"}},
    {"type": "resource", "resource": {"uri": "mem://b", "mimeType": "image/png", "blob": "iVBORw0KGgo="}},
    {"type": "resource_link", "uri": "mem://c", "name": "C"},
    {"type": "text", "text": "see data:image/png;base64,iVBORw0KGgpB" + "QUJD" * 100 + " there"},
]


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def note(word):
    with open(HABITS["log"], "a") as file:
        file.write(word + "\n")


def ask(number, method, params):
    say({"id": number, "method": method, "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            return text(json.dumps(message.get("result") or message.get("error")))
    return None


def progress(token, done, total):
    params = {"progressToken": token, "progress": done, "total": total, "message": "step"}
    say({"method": "notifications/progress", "params": params})


def form():
    if "form" not in HABITS:
        return QUESTION
    with open(HABITS["form"]) as file:
        return {**QUESTION, "requestedSchema": json.load(file)}


def flaky():
    if not os.path.exists(HABITS["log"] + ".died"):
        open(HABITS["log"] + ".died", "w").close()
        os._exit(4)
    return text("came back")


def grow():
    TOOLS.append({"name": "grown", "description": "New.", "inputSchema": ANYTHING})
    say({"method": "notifications/tools/list_changed"})
    return text("grew")


def slowly(token):
    progress(token, 1, 2)
    progress(token, 2, 2)
    say({"method": "notifications/message", "params": {"level": "warning", "data": "careful"}})
    return text("done")


def nudge(token):
    for done in range(100):
        progress(token, done, None)
        time.sleep(0.1)
    return text("tired")


def call(name, args, token):
    if name == "echo":
        return text(args["text"])
    if name == "die":
        os._exit(3)
    if name == "big":
        return text("x" * HABITS.get("size", 20_000_000))
    if name == "blocks":
        return {"content": BLOCKS, "structuredContent": {"n": 1}}
    if name == "ask":
        return ask("q1", "elicitation/create", form())
    if name == "sample":
        return ask("q3", "sampling/createMessage", WONDER)
    if name == "roots":
        return ask("q2", "roots/list", {})
    if name in ("flaky", "grow"):
        return {"flaky": flaky, "grow": grow}[name]()
    if name in ("slowly", "nudge"):
        return {"slowly": slowly, "nudge": nudge}[name](token)
    return text(json.dumps({"called": name, "args": args}))


def answer(method, params):
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {}, "logging": {}}
        info = {"name": "scripted", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "serverInfo": info, "capabilities": capabilities}
    if method == "tools/list":
        note("listed")
        return {"tools": TOOLS}
    if method == "resources/list":
        return {"resources": [{"uri": "mem://a", "name": "A", "description": "first"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "contents"}]}
    if method == "tools/call":
        meta = params.get("_meta") or {}
        return call(params["name"], params.get("arguments") or {}, meta.get("progressToken"))
    return None


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        params = message.get("params") or {}
        if method == "notifications/cancelled":
            note("cancelled")
        if HABITS.get("hang") or number is None or method in HABITS.get("silent", ()):
            continue
        if method == "tools/call" and params["name"] == "sleep":
            note("sleeping")
            continue
        if method == "tools/call" and params["name"] == "raw":
            sys.stdout.buffer.write(HABITS["raw"].replace("ID", json.dumps(number)).encode("latin-1") + b"\n")
            sys.stdout.flush()
            continue
        result = answer(method, params)
        if result is None:
            say({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        else:
            say({"id": number, "result": result})


if __name__ == "__main__":
    note(f"started {os.getpid()}")
    if HABITS.get("banner"):
        print("Welcome to the server!\n\n{not json}\n[1, 2]\n", flush=True)
    if HABITS.get("stderr"):
        sys.stderr.write("noise\n" * HABITS["stderr"] + "last words\n")
        sys.stderr.flush()
    if HABITS.get("child"):
        note(f"started {subprocess.Popen(['sleep', '300'], start_new_session=True).pid}")
    if HABITS.get("daemon"):  # twice forked, in a session of its own, with nothing of our environment
        script = "setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!"
        done = subprocess.run(["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        note(f"started {done.stdout.strip()}")
    if HABITS.get("exit"):
        sys.stderr.write("no licence\n")
        sys.exit(1)
    time.sleep(HABITS.get("delay", 0))
    serve()
