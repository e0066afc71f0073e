"""APIs of models: three wires, the scripted model, retries, prices.

Other rooms use `registry` and `catalog`. It imports `core` and `web`.
"""
