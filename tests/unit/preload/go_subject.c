/* A dynamic program with the note of the Go linker. */
__asm__(
    ".pushsection .note.go.buildid, \"a\", @note\n"
    ".balign 4\n"
    ".long 4, 4, 4\n"
    ".ascii \"Go\\0\\0\"\n"
    ".ascii \"none\"\n"
    ".popsection\n");

int main(void) { return 0; }
