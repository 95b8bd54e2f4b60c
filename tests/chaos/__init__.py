"""Workers, clients and a server under faults, and a checker that reads what they left.

    python3 -m example_project chaos --seconds 180 --seed 7

    __main__   the options, the report, the exit status
    conduct    the run: it starts everybody, lets the faults loose, calms down, asks the checker
    stage      the server, its proxy and the processes
    faults     what goes wrong, and when, by a seeded schedule
    proxy      a TCP proxy that delays, drops and cuts
    load       a client: enqueues, cancels, redrives, and keeps a record of its own
    tasks      what the workers do, leaving a trace of each effect
    evidence   what the log, the tables and the traces say afterwards
    checker    whether that is what was promised

The seed decides what is enqueued and when what goes wrong; what meets what is up to the machine.
"""
