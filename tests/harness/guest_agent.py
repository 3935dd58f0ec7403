"""The guest's first process: obeys the harness over a virtio-serial port, one command at a time.

A command and its answer are one line of JSON each. The first line it sends is {"boot_id": …}.

  {"run": ARGV, "timeout": S, "input": TEXT, "env": {…}}  -> {"code": N, "out": TEXT, "err": TEXT}
  {"start": ARGV, "log": FILE, "ledger": PORT or null, "env": {…}}  -> {"pid": N}
     `ledger`: standard output is that port. A line has left the machine when write returns.
  {"poll": PID}  -> {"code": N or null}      {"signal": PID, "number": N}  -> {}

Stand-alone. When it ends the kernel panics, and the harness sees that.
"""
import glob
import json
import os
import subprocess

CONTROL = "control"


def port(name):
    """Returns the device of the virtio-serial port with this name."""
    for path in glob.glob("/sys/class/virtio-ports/*/name"):
        with open(path) as f:
            if f.read().strip() == name:
                return "/dev/" + path.split("/")[4]
    raise FileNotFoundError("virtio-serial port " + name)


def run(command):
    try:
        done = subprocess.run(command["run"], input=command.get("input", ""), env=_environment(command), text=True,
                              timeout=command["timeout"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"code": 127, "out": "", "err": "%s: %s" % (type(error).__name__, error)}
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def start(command, children):
    with open(command["log"], "ab") as log:
        out = open(port(command["ledger"]), "wb", buffering=0) if command["ledger"] else log
        with out:
            child = subprocess.Popen(command["start"], stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                     env=_environment(command), start_new_session=True)
    children[child.pid] = child
    return {"pid": child.pid}


def _environment(command):
    return dict(os.environ, **command.get("env") or {})


def obey(command, children):
    if "run" in command:
        return run(command)
    if "start" in command:
        return start(command, children)
    if "poll" in command:
        return {"code": children[command["poll"]].poll()}
    if "signal" in command:
        children[command["signal"]].send_signal(command["number"])
        return {}
    return {"error": "unknown command"}


def _write_all(stream, data):
    while data:
        data = data[stream.write(data):]  # the driver takes 32 KiB at most


def main():
    children = {}
    with open("/proc/sys/kernel/random/boot_id") as f:
        answer = {"boot_id": f.read().strip()}
    with open(port(CONTROL), "rb+", buffering=0) as control:
        buffer = b""
        while True:
            _write_all(control, json.dumps(answer).encode() + b"\n")
            while b"\n" not in buffer:
                piece = control.read(65536)
                if not piece:
                    raise EOFError("the harness hung up")
                buffer += piece
            line, _, buffer = buffer.partition(b"\n")
            answer = obey(json.loads(line), children)


if __name__ == "__main__":
    main()
