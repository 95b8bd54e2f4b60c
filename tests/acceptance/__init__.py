"""Django's own tests of task backends, run against ours.

    python -m tests.acceptance

fetches the source distribution of the installed Django with pip and runs its ``tests/tasks``, with
the two built-in backends swapped for ``shims``: on PostgreSQL (DATABASE_URL, else a private server)
and on SQLite. It takes Django 6.0 or newer: before, tasks were the backport's, whose source
distribution carries no tests; there ``tests/backend`` is what holds our backend.
"""
