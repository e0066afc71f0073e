"""Many sessions from a file of tasks: on one machine, in shards, or on a Ray cluster; nothing finished is lost or repeated."""
