# Everything sets itself up: uv is installed into .uv/ when the machine has none.
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
PYTHON ?= python3
RUN := $(UV) run --no-sync
# A `make` that `make` calls says nothing of folders: shells and tests read its output.
MAKEFLAGS += --no-print-directory
export PYTHONPATH := $(CURDIR)
# Some images set this. Without byte code each of the tests' processes compiles the package again.
unexport PYTHONDONTWRITEBYTECODE
# selenium brings trio, which each import of hypothesis would import: 0.35 s for each process.
export HYPOTHESIS_NO_PLUGINS := 1

.PHONY: help demo test test-oldest coverage check format bench bench-small bench-sizes bench-plan bench-memory bench-cloud \
	bench-large bench-verify bench-everyday bench-burst acceptance faults \
	simulate simulate-mutants fuzz corpus mutants audit docs pictures site site-links dist clean \
	local-aws cdk bootstrap synth package diff deploy put unprotect destroy

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-28s %s\n", $$1, $$2}' Makefile

demo: .venv/demo embedded/.venv/ready  ## run the pipeline on an embedded AWS
	$(RUN) python -m embedded.demo $(if $(ARCHIVE),--archive "$(ARCHIVE)") $(if $(KEEP),--keep)

local-aws: .venv/ready embedded/.venv/ready  ## the embedded AWS alone, for the commands of docs/deploy.md
	@$(RUN) python -m embedded.serve $(if $(PORT),--port $(PORT))

# On AWS: docs/deploy.md.
bootstrap:  ## ENV=dev: prepare the account and the region for CDK, once
synth:  ## ENV=dev: write the template to cdk.out
package:  ## ENV=prod BUCKET=artifacts: template and asset, to be deployed without the CDK CLI
diff:  ## ENV=dev: what a deployment would change
deploy:  ## ENV=dev: create or update the stack; SET="section.setting=value ..." YES=1
put:  ## ENV=dev ARCHIVE=archive.zip KEY=prefix/: put an archive, and wait until its run begins
unprotect:  ## ENV=prod: allow the stack to be destroyed
destroy:  ## ENV=dev: delete the stack, its buckets and their objects
bootstrap synth package diff deploy put unprotect destroy: .venv/bin/cdk
	@$(RUN) python -m infra.deployment $@ --env "$(ENV)" $(if $(SET),--set "$$SET") \
		$(if $(filter 1 y yes true,$(YES)),--yes) $(if $(ARCHIVE),--archive "$(ARCHIVE)") \
		$(if $(KEY),--key "$(KEY)") $(if $(BUCKET),--bucket "$(BUCKET)")

cdk: .venv/bin/cdk  ## the CDK CLI, for `cdk` after `. .venv/bin/activate`
	@.venv/bin/cdk --version

# Twice as many processes as two cores need: some tests wait for a clock or for a server.
# tests/collecting.py begins with the slow modules.
TESTS := pytest -n $(or $(JOBS),4) --dist loadscope --no-loadscope-reorder $(TESTS_BELOW)

test: .venv/ready embedded/.venv/ready .venv/bin/cdk  ## all tests; JOBS=4 processes, TESTS_BELOW=tests/unit, COVERAGE=1 with the branches they take
ifdef COVERAGE
	@mkdir -p build/coverage
	$(RUN) $(TESTS) --cov --cov-report=json:build/coverage.json
	$(RUN) python -m tools.branches build/coverage.json
else
	$(RUN) $(TESTS)
endif

coverage:  ## `make test COVERAGE=1`
	$(MAKE) test COVERAGE=1

# An old botocore does not know each storage class, and CloudWatch's answers have another form in it.
test-oldest: build/oldest-venv/ready embedded/.venv/ready  ## the tests of the package with the oldest releases that the wheel allows; Python 3.11
	build/oldest-venv/bin/pytest -n $(or $(JOBS),4) --dist loadscope --no-loadscope-reorder \
		--deselect tests/unit/test_model.py::test_canned_acls_and_storage_classes_are_botocores \
		--deselect tests/unit/operate/test_doctor.py::test_a_notification_that_failed_is_named \
		$(or $(TESTS_BELOW),tests/unit tests/contract tests/functional)

check: .venv/ready  ## format, lint, types, layers, workflows, reference, and how the code reads
	$(RUN) ruff format --check
	$(RUN) ruff check
	$(RUN) mypy
	$(RUN) lint-imports
	$(RUN) zizmor --offline --quiet .github/workflows
	$(RUN) python -m docs.generate --check
	$(RUN) python -m tools.house

format: .venv/ready
	$(RUN) ruff format
	$(RUN) ruff check --fix

bench: .venv/ready embedded/.venv/ready .venv/bin/cdk  ## all benches, and one table at the end
	$(RUN) python -m bench

bench-cloud bench-everyday bench-burst: .venv/bin/cdk
bench-small:  ## small members: CPU, rate, beside zipfile and boto3
bench-sizes:  ## 1 to 20,000 members beside s3-unspool, and the start of each command
bench-plan:  ## the plan of a million members
bench-memory:  ## memory of a run of 2 GB
bench-large:  ## streams, copies, splits
bench-verify:  ## verify, beside a loop of HEADs
bench-cloud:  ## the pipeline on the embedded AWS
bench-everyday:  ## one small archive, beside a plain Lambda function
bench-burst:  ## 200 archives at once
bench-small bench-sizes bench-plan bench-memory bench-large bench-verify bench-cloud bench-everyday bench-burst: .venv/ready embedded/.venv/ready
	$(RUN) python -m bench $(@:bench-%=%)

acceptance: .venv/ready  ## ENV=dev SCALE=small|full YES=1 ONLY=case: the set against a deployed environment
	$(RUN) python -m acceptance --env $(or $(ENV),dev) --scale $(or $(SCALE),small) \
		$(if $(filter 1 y yes true,$(YES)),--yes) $(foreach case,$(ONLY),--only $(case)) $(if $(JSON),--json "$(JSON)")

faults: .venv/ready  ## ONLY=killed: the fault-injection harness, its long form
	FAULTS=long $(RUN) pytest -s -q tests/faults/test_harness.py $(if $(ONLY),-k "$(ONLY)")

simulate: .venv/ready  ## SECONDS=60, or SEED=number WITHOUT=faults: docs/contributing/simulation.md
	$(RUN) python -m tests.simulation --seconds $(or $(SECONDS),60) \
		$(if $(SEED),--seed $(SEED)) $(if $(WITHOUT),--without $(WITHOUT))

simulate-mutants: .venv/ready  ## faults planted into the package, and how soon the simulation finds each
	$(RUN) python -m tests.simulation.mutants --seconds $(or $(SECONDS),120)

fuzz: .venv/ready  ## SECONDS=3600 TARGET=directory|local|codecs|boundary|placing|answers|names
	$(RUN) python -m tests.fuzz --seconds $(or $(SECONDS),600) $(if $(TARGET),--target $(TARGET))

corpus: .venv/ready  ## both corpora, by all readers that are installed; S3UNZIP_CORPUS=folder of the larger one
	CORPUS=long $(RUN) pytest -q tests/corpus

mutants: .venv/ready  ## ONLY=zip/local.py SECONDS=3600: which faults no test sees
	$(RUN) python -m tools.mutants --seconds $(or $(SECONDS),3600) \
		$(foreach module,$(ONLY),--only $(module))

audit: .venv/ready  ## known holes in dependencies
	$(RUN) python -m bench.audit

pictures: .venv/ready  ## docs/images; needs chromium, chromedriver and versitygw on the PATH
	$(RUN) python -m tools.pictures

docs: .venv/ready  ## regenerate the reference
	$(RUN) python -m docs.generate

site: build/site-venv/ready  ## the documentation as a site, in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 build/site-venv/bin/mkdocs build
	build/site-venv/bin/python -m tools.site.check build/site

site-links: site  ## ask for every external link of the site; needs a network
	build/site-venv/bin/python -m tools.site.check build/site --external

dist: .venv/ready  ## build the wheel and the source distribution into dist/
	rm -rf dist
	$(UV) build --quiet

clean:
	rm -rf .venv .uv embedded/.venv node_modules build cdk.out .mypy_cache .ruff_cache .pytest_cache

.venv/ready: pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --compile-bytecode --python $(PYTHON)
	@touch $@

# What the demo needs, without the development packages; those that are there already stay.
# Python compiles what is imported, which is far less than what is installed.
.venv/demo: pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --inexact --no-default-groups --group infra --python $(PYTHON)
	@touch $@

.venv/bin/cdk: package.json package-lock.json | .venv/ready
	$(RUN) python -m infra.cdk_cli

# The oldest releases that pyproject.toml allows replace those that the tools of the tests ask for.
build/oldest-venv/ready: pyproject.toml | $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) build/oldest-venv
	$(UV) pip compile --quiet --python build/oldest-venv --resolution lowest-direct --all-extras \
		--no-annotate --no-header pyproject.toml --output-file build/oldest.txt
	$(UV) pip install --quiet --python build/oldest-venv --override build/oldest.txt --group dev \
		--editable .
	@touch $@

# MkDocs has an environment of its own: neither the demo nor the tests install it.
build/site-venv/ready: pyproject.toml uv.lock | $(UV)
	UV_PROJECT_ENVIRONMENT=build/site-venv $(UV) sync --frozen --only-group docs --python $(PYTHON)
	@touch $@

embedded/.venv/ready: embedded/pyproject.toml embedded/uv.lock | $(UV)
	$(UV) sync --frozen --compile-bytecode --project embedded --python $(PYTHON)
	@touch $@

.uv/bin/uv:
	$(PYTHON) -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check uv
