"""APIs of models: three wires, the scripted model, retries, prices.

Other rooms use `catalog`. It imports `core` and `web`.
"""
