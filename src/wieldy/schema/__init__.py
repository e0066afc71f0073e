"""JSON in, JSON out: what input a tool takes, and how a call's JSON becomes Python values.

    annotations ──field──▶ fields ──derive──▶ JSON Schema          what the model is shown
                              └───convert──▶ msgspec types

    a call's words ──mend──▶ dict ──Parameters.accept──▶ Python values
                                          │ Misfit: check lists every problem
                                          ├──coerce──▶ nearly right types, once more through accept
                                          └──explain─▶ the text the model reads

`problem` holds what can be wrong, `annotate` what an author can add to a type. `strict` decodes, `repair` follows the
grammar of what is almost JSON, `compose` holds the joints of a schema. Only `convert` wraps msgspec, only `check` wraps
jsonschema-rs; both are loaded at first use. Nothing here knows what a tool is.
"""
