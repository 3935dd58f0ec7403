"""Opens an SQLite database as after a crash, and prints its content as JSON.

usage: sqlite_reader.py DB

Stand-alone, so that it can run under salius-run. The output: {"integrity": [line…], "rows": {n:
body}}, or {"error": text}.
"""
import json
import sqlite3
import sys


def read(path):
    """Returns the output as a dict; the keys of "rows" are numbers."""
    connection = sqlite3.connect(path, timeout=30)
    try:
        integrity = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        return {"integrity": integrity, "rows": dict(connection.execute("SELECT n, body FROM ledger ORDER BY n"))}
    except sqlite3.DatabaseError as error:
        return {"error": str(error)}
    finally:
        connection.close()


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1])))
