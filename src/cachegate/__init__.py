"""Cachegate: an LLM gateway for coding agents with a guard against broken prompt caches."""

__version__ = "0.1.0"
