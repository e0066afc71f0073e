"""The network: HTTP client, address policy, pages, web search, the proxy of the sandbox, the browser.

Other rooms use `fetch`, `http` and `browser`. It imports `core` and `shell`.
"""
