#!/usr/bin/perl

# Copyright (C) the llm-capture authors

# The scan's verdict and orjson's, over 100 000 bodies: see
# t/lib/scan_orjson.py.  SCAN_ORJSON_SEED and SCAN_ORJSON_COUNT repeat a run.

use warnings;
use strict;

my $python = 'build/venv/bin/python';
my $program = 'build/unit/scan_verdict';

for my $file ($python, $program) {
	next if -x $file;

	print "1..1\nnot ok 1 - $file is there\n";
	print "# run the tests from the top of the tree, by: make test\n";
	exit 1;
}

exec($python, 't/lib/scan_orjson.py', $program,
	$ENV{SCAN_ORJSON_COUNT} || 100000,
	defined $ENV{SCAN_ORJSON_SEED} ? $ENV{SCAN_ORJSON_SEED} : ())
	or die "exec $python: $!\n";
