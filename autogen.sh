#!/bin/sh
# Makes configure and the Makefile.in files of a stand-alone build. Inside an Open MPI tree this file is not used:
# Open MPI's own autogen.pl reads configure.m4 and Makefile.am.
set -eu
cd "$(dirname "$0")"
mkdir -p config/m4 config/aux
exec autoreconf --install --force "$@"
