"""The tools of a toolbox for other agent frameworks: one module per framework, each imported when it is used."""
