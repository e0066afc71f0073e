"""Tool input: annotations to JSON Schema, and a call's JSON to Python values. Nothing here knows what a tool is.

annotations ──fields──▶ Fields ──derive───▶ JSON Schema        what the model is sent
                           └────convert───▶ msgspec types

a call's text ──json_repair──▶ dict ──Parameters.accept──▶ Python values
                                          │ InvalidInput: `check` lists every problem
                                          ├──coerce───▶ nearly right types, accepted once more
                                          └──explain──▶ the text the model reads
"""
