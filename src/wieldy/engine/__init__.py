"""Takes one tool call through its stages: lookup, bind, normalize, queue, consult, authorize, execute, finalize."""
