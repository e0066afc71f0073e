"""One call's way, one stage a file: lookup, bind, normalize, queue, consult, authorise, execute, conclude; handle joins them."""
