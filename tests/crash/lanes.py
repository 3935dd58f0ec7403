"""Many short cases on several sites at once: most of a case is a wait for another process."""
import threading
import time
import traceback


class Cases:
    """Runs `case(site, item)` for every item, each site in a thread of its own.

    `results` holds the returned values by item. With `seconds` no case begins later than that. An
    exception of a case is its failure. A process that a case starts on its site ends at the latest
    with the last case. With `test` (a harness Case) results are kept as they come. An item with a
    result from an earlier part of the run (under the name `what`) does not run again."""

    def __init__(self, sites, items, case, seconds=None, test=None, what=""):
        self.results, self.failures = {}, []
        self._lock = threading.Lock()
        self._case, self._test, self._what = case, test, what
        todo = []
        for item in items:
            before = test.done_before(self._key(item), None) if test else None
            if before is None:
                todo.append(item)
            else:
                self.results[item] = before
        if self.results:
            test.report("%d of %d cases were done before", len(self.results), len(items))
        self._items = iter(todo)
        self._all, self._said = len(items), time.monotonic()
        self._end = None if seconds is None else time.monotonic() + seconds
        threads = [threading.Thread(target=self._lane, args=(site,)) for site in sites]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:  # interrupted: the sites are about to be removed
            self._end = 0
            for thread in threads:
                thread.join()
            raise

    def _next(self):
        with self._lock:
            # A broken build fails everywhere: a few failures say as much as hundreds.
            if len(self.failures) >= 20 or (self._end is not None and time.monotonic() > self._end):
                return None
            return next(self._items, None)

    def _key(self, item):
        return "%s %s" % (self._what, item)

    def _keep(self, item, result):
        with self._lock:
            self.results[item] = result
            if self._test:
                self._test.keep(self._key(item), result)
                if time.monotonic() > self._said + 60:
                    self._said = time.monotonic()
                    self._test.report("%s: %d of %d cases", self._what, len(self.results), self._all)

    def _lane(self, site):
        while (item := self._next()) is not None:
            try:
                self._keep(item, self._case(site, item))
            except Exception:  # noqa: the thread must not end before the items do
                with self._lock:
                    self.failures.append("%s: %s" % (item, traceback.format_exc(limit=-3)))


def each(things, work):
    """Returns {thing: work(thing)}, all at the same time. `work` must end the processes that it
    starts: they end with the thread that started them (Proc). Raises the first error when all have
    ended."""
    results, errors = {}, []

    def run(thing):
        try:
            results[thing] = work(thing)
        except Exception as error:  # noqa: raised in the caller's thread
            errors.append(error)
    threads = [threading.Thread(target=run, args=(thing,)) for thing in things]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def until_hit(attempt, at, tries):
    """Calls attempt(last) until a run hits its point, number `at`, at most `tries` times: the
    number of points may vary between runs.

    attempt() returns [where, points, *figures]. `where` is the place at which the program was
    killed ("" for none), `points` how many points the run had on its own. The attempt with `last`
    may make the program continue past its end until it reaches its point there.

    Returns [where, [points of each run that ended before its point], *the sums of the figures]."""
    short, sums = [], None
    for last in [False] * (tries - 1) + [True]:
        where, points, *figures = attempt(last)
        sums = [a + b for a, b in zip(sums, figures)] if sums else figures
        if points < at:
            short.append(points)
        if where:
            break
    return [where, short, *sums]


def not_hit(test, results, sure):
    """Prints how many cases hit their point and, for each of the others, how many points its runs
    had.

    `results`: of until_hit(), by items that begin with (kind, number, after). `sure`: {kind:
    count}; cases up to that number must hit their points. Returns the items among those that did
    not, which must be none."""
    lost = []
    for kind, first in sure.items():
        some = {item: result for item, result in results.items() if item[0] == kind}
        missed = {item: short for item, (where, short, *_) in sorted(some.items()) if not where}
        test.report("%s: %d of %d cases hit their point; must be: the first %d%s", kind, len(some) - len(missed),
                    len(some), first, "".join("; never reached: %s %d, %d runs had %d to %d" % (
                        "after" if item[2] else "before", item[1], len(short), min(short), max(short))
                        for item, short in missed.items()))
        lost += [item for item in missed if item[1] <= first]
    return lost


def text(failures):
    """Returns the first failures; of a long one its two ends: the call is at one, its log's last lines at
    the other."""
    def ends(failure):
        return failure if len(failure) <= 6000 else "%s\n[...]\n%s" % (failure[:2000], failure[-4000:])
    return "%d failed:\n%s" % (len(failures), "\n".join(ends(failure) for failure in failures[:4]))
