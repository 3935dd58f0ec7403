"""Many short cases on several sites at once: most of a case is waiting for another process."""
import threading
import time
import traceback


class Cases:
    """Runs `case(site, item)` for every item, each site in a thread of its own. With `seconds` no case begins
    later than that; `done` says how many were run. An exception of a case is its failure. What a case starts on its
    site ends at the latest with the last case."""

    def __init__(self, sites, items, case, seconds=None):
        self.done, self.failures = 0, []
        self._lock = threading.Lock()
        self._items = iter(items)
        self._case = case
        self._end = None if seconds is None else time.monotonic() + seconds
        threads = [threading.Thread(target=self._lane, args=(site,)) for site in sites]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:  # interrupted: the sites are about to be taken away
            self._end = 0
            for thread in threads:
                thread.join()
            raise

    def _next(self):
        with self._lock:
            # A broken build fails everywhere: a few failures tell as much as hundreds.
            if len(self.failures) >= 20 or (self._end is not None and time.monotonic() > self._end):
                return None
            item = next(self._items, None)
            if item is not None:
                self.done += 1
            return item

    def _lane(self, site):
        while (item := self._next()) is not None:
            try:
                self._case(site, item)
            except Exception:  # noqa: the thread must not end before the items do
                with self._lock:
                    self.failures.append("%s: %s" % (item, traceback.format_exc(limit=-3)))


def each(things, work):
    """{thing: work(thing)}, all at the same time. What starts processes must end them itself: they end with the
    thread that started them (Proc). Raises the first error when all have ended."""
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


def text(failures):
    return "%d failed:\n%s" % (len(failures), "\n".join(failure[:4000] for failure in failures[:4]))
