"""A standing fuzzer: odd objects, streams, plugins, reviews, readings and configurations, and what must hold then.

It stands beside the end-to-end tests because it knows every component; unlike them it needs no control plane. An input
is JSON data, made by hypothesis from the API's own types, so that what fails can be saved, replayed and kept.
"""
