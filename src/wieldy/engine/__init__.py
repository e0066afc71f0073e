"""One call's way, one stage a file: lookup, bind, normalise, queue, consult, authorise, execute, conclude; handle joins them."""
