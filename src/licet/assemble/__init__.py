"""The composition root: the only place that picks backends and looks at this machine's directories."""

from licet.assemble.review import Places, draft, review

__all__ = ["Places", "draft", "review"]
