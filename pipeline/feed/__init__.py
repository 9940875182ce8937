"""What a feed on disk is, and how it is read without Spark: by `FeedSpout`, and in Python by `Feed`."""

from squall.pipeline.feed.lines import Feed

__all__ = ["Feed"]
