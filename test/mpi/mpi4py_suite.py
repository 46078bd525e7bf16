"""Runs mpi4py's own test suite and writes down what becomes of each test.

    mpi4py_suite.py TESTS RECORD EXCLUDED [OPTION of runtests.py...]

TESTS is the directory of runtests.py. EXCLUDED is a list of tests, classes or modules, with commas in between, that are left out; each
must be there. RECORD.RANK gets a line for each test: its name when it begins, and "pass", "skip REASON" or "fail" when it ends. So the last
line of a run that hangs names the test that hangs. What a rank says goes to RECORD.log.RANK, past mpirun, to its last word.
"""

import os
import sys
import unittest

tests, record, excluded = sys.argv[1:4]
rank = os.environ["OMPI_COMM_WORLD_RANK"]
log = os.open(f"{record}.log.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
for fd in 1, 2:
    os.dup2(log, fd)
lines = open(f"{record}.{rank}", "w", buffering=1)

sys.dont_write_bytecode = True
sys.path.insert(0, tests)
import runtests


class Recorder(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self.became = "pass"
        lines.write(test.id() + " ")
        lines.flush()

    def stopTest(self, test):
        super().stopTest(test)
        lines.write(self.became + "\n")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.became = "skip " + reason

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.became = "fail"

    def addError(self, test, err):
        super().addError(test, err)
        self.became = "fail"

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.became = "fail"


def each_test(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from each_test(item)
        else:
            yield item


def load_tests(options, args):
    left = list(each_test(load_all(options, args)))
    for name in filter(None, excluded.split(",")):
        others = [test for test in left if not (test.id() + ".").startswith(name + ".")]
        if len(others) == len(left):
            sys.exit(f"there is no test {name} that could be left out")
        left = others
    return unittest.TestSuite(left)


load_all, runtests.load_tests = runtests.load_tests, load_tests
unittest.TextTestRunner.resultclass = Recorder
sys.exit(runtests.main(["--no-builddir", *sys.argv[4:]]))
