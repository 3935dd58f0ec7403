"""The common part of the benchmarks' command lines: options, namespaces, work directory, exit
codes."""
import os
import signal
import sys

from bench.quiet import NotQuiet
from bench.setup import enter_network
from harness import run as harness_run
from harness.journal import Journal


def add_options(parser):
    parser.add_argument("--smoke", action="store_true", help="smallest size: shows that everything works")
    parser.add_argument("--cpu", type=int, default=(os.cpu_count() or 1) - 1, help="for what is packed on one CPU")
    parser.add_argument("--json", type=os.path.abspath, help="also write every figure to this file")
    parser.add_argument("--no-wait", action="store_true", help="measure on a busy machine too")


def parse(parser, known, metavar, seconds, rounds, smoke_seconds=0.2):
    """Returns the arguments: `names`, each of `known`, and the length of the measurement."""
    parser.add_argument("names", nargs="*", metavar=metavar, help="of: " + ", ".join(known))
    parser.add_argument("--seconds", type=float, default=seconds, help="of a round")
    parser.add_argument("--rounds", type=int, default=rounds)
    add_options(parser)
    args = parser.parse_args()
    unknown = set(args.names) - set(known)
    if unknown:
        parser.error("no %s %s" % (metavar, ", ".join(sorted(unknown))))
    if args.smoke:
        args.seconds, args.rounds, args.no_wait = smoke_seconds, 1, True
    return args


def main(module, args, run):
    """Runs run(args) in namespaces of its own. Exit status: 0, or the result of run; 1 when
    something failed, 3 when the machine is not quiet."""
    harness_run.enter_namespaces([sys.executable, "-m", module] + sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    work = harness_run.start(0, not args.smoke, Journal())
    try:
        enter_network()
        # For every replica a log of gigabytes may lie there.
        harness_run.sh("mount", "-o", "remount,size=90%", "/dev/shm")
        return run(args) or 0
    except NotQuiet as error:
        print(error, file=sys.stderr)
        return 3
    except harness_run.HarnessError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 1
    finally:
        work.close()
