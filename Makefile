# Short names; every one is a command that works without make.

RUN = python3 -m example_project

.PHONY: help demo reset smoke test chaos soak bench micro acceptance nightly million mutants sweep mutmut screenshots messages scale lint types format matrix constraints ci

help:  ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-12s %s\n", $$1, $$2}' Makefile

demo:  ## The admin, a worker and the sample orders; Ctrl-C ends it all
	$(RUN) demo

reset:  ## The demo, from the beginning
	$(RUN) demo --reset

smoke:  ## Does the demo do its work? On data of its own
	$(RUN) demo --smoke

test:  ## All tests; ARGS="-k redrive -x" goes to pytest
	$(RUN) test $(ARGS)

chaos:  ## Workers and clients under faults, then a checker; ARGS="--seconds 600 --seed 7"
	$(RUN) chaos $(ARGS)

soak:  ## A worker under a steady load; ARGS="--minutes 60"
	$(RUN) soak $(ARGS)

bench:  ## Ours beside its peers and bare SQL, into docs/benchmarks.md; 5 minutes; ARGS="--rounds 3"
	$(RUN) bench $(ARGS)

micro:  ## Claim, complete, enqueue and the worker, in microseconds; ARGS="-k claim" goes to pytest
	$(RUN) bench micro $(ARGS)

acceptance:  ## Django's own tests of task backends, run against ours
	$(RUN) tox run -e acceptance

nightly:  ## The model against each database, at length; ARGS="-k sqlite"
	$(RUN) tox run -e nightly -- $(ARGS)

million:  ## Verify a million tasks, and say what that takes; ARGS=20000 for fewer
	$(RUN) tox run -e million -- $(ARGS)

screenshots:  ## Walk through the admin in Chromium, and renew the pictures of the docs
	$(RUN) screenshots

messages:  ## Bring the catalogues of translations up to date with the sources, and compile them
	$(RUN) messages

scale:  ## Fill DATABASE_URL, an empty PostgreSQL, with a large queue; measure the pages on it
	python manage.py scale seed && python manage.py scale measure
mutants:  ## Plant the known faults, one by one, and see them caught; ARGS=heartbeat for some
	$(RUN) tox run -e mutants -- $(ARGS)

sweep:  ## Small changes to any part, and which no test notices; ARGS="--sample 20 stores/ worker/"
	$(RUN) tox run -e sweep -- $(ARGS)

mutmut:  ## Each small change to the pure rules, and which of them no test notices
	$(RUN) tox run -e mutmut

lint:  ## Ruff's rules and format, and the layers
	$(RUN) tox run -e lint

types:  ## mypy, and that no migration is missing
	$(RUN) tox run -e types

format:  ## Put the code in shape
	$(RUN) tox run -e format

matrix:  ## The tests on each pair of Python and Django
	$(RUN) tox run -f py

constraints:  ## Take the newest versions of all packages (needs uv)
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --upgrade \
	    --strip-extras --no-annotate --no-header -o example_project/constraints.txt

ci:  ## What CI runs
	.ci/run
