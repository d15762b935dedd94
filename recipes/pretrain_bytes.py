"""Text that every Python brings along: its reference, 465 KB (Python Software Foundation License)."""


def load():
    """Pieces of 1,000 characters."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    return {"text": [text[start : start + 1000].encode() for start in range(0, len(text), 1000)]}
