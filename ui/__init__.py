"""The eyes: what a cluster does, for browsers, programs and terminals."""
