"""Our queue, its peers and bare SQL, measured side by side on one server in one run.

    python3 -m example_project bench              docs/benchmarks.md, within 5 minutes
    python3 -m example_project bench --rounds 3   the medians of three rounds
    python3 -m example_project bench micro        parts of ours, in microseconds

``measure`` asks the questions, ``contestants`` answer them, each in a process and an environment
of its own; ``server`` is the PostgreSQL they share, ``report`` what comes of it.
"""
