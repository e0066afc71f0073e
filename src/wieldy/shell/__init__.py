"""Commands: parsing bash, what a command does (`effects`), running it, the sandbox; backends, and checkers of code.

Other rooms use `effects.analysis`, `running.session`, `sandbox.sandbox` and `backends`. It imports `core` and `files`.
"""
