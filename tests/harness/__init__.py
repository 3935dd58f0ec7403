"""Harness for tests with real parts: real binaries, sockets, FUSE mounts, file systems on loop
devices, network namespaces, and power cuts by the file systems' own shutdown ioctl. docs/testing.md
says how to run it and what each part promises. Beside pytest it uses the standard library only.
"""
