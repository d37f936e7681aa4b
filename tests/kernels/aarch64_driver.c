/* Runs calls of a shared object's functions that another process wrote down: for qemu-user, where there is no Python.
 *
 * argv: shared object, input file, output file. Input, little-endian int64 unless said: number of calls; per call the
 * function's name (64 bytes), number of integer arguments, each as (kind, value) with kind 0 a number, 1 a null pointer,
 * 2 a buffer of `value` bytes that follows and is written to the output file after the call; number of float arguments
 * and each one's 8 bytes (a float in the low four). Integers and floats travel in registers of their own in AAPCS64, so
 * the order between the two kinds does not matter. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int64_t function(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                         int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double, double, double, double);

static int64_t number(FILE *in) {
    int64_t n;
    if (fread(&n, 8, 1, in) != 1) exit(2);
    return n;
}

int main(int argc, char **argv) {
    void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return fprintf(stderr, "%s\n", argc == 4 ? dlerror() : "usage: object input output"), 2;
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    for (int64_t calls = number(in); calls > 0; calls--) {
        char name[64];
        if (fread(name, 64, 1, in) != 1) return 2;
        int64_t a[16] = {0}, sizes[16] = {0}, count = number(in);
        double d[4] = {0};
        for (int64_t i = 0; i < count; i++) {
            const int64_t kind = number(in), value = number(in);
            if (kind == 2) {
                void *buffer = aligned_alloc(64, (size_t)(value + 63) / 64 * 64 + 64);
                if (fread(buffer, 1, (size_t)value, in) != (size_t)value) return 2;
                a[i] = (int64_t)buffer, sizes[i] = value;
            } else
                a[i] = kind == 1 ? 0 : value;
        }
        const int64_t floats = number(in);
        if (fread(d, 8, (size_t)floats, in) != (size_t)floats) return 2;
        function *f = (function *)dlsym(library, name);
        if (!f) return fprintf(stderr, "no function %s\n", name), 2;
        f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], d[0],
          d[1], d[2], d[3]);
        for (int64_t i = 0; i < count; i++)
            if (sizes[i]) fwrite((void *)a[i], 1, (size_t)sizes[i], out), free((void *)a[i]);
    }
    return fclose(out) != 0;
}
