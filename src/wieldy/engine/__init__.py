"""One call (`pipeline`), the calls of one answer (`turn`), and the `Toolbox` around them with its services.

Other rooms use `Toolbox`, `Turn` and `workspace_services`. It imports all rooms before it.
"""
