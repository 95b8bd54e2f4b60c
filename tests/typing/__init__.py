"""The public surface as a user's type checker sees it. Nothing here is run; ``mypy`` reads it."""
