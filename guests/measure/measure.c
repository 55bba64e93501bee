/* What the guest's disk and network carry, measured inside it: one line of `MEASURE name=value` each, in KiB/s or
 * operations a second. Disks are opened with O_DIRECT, so that the guest's own cache is no part of it.
 *
 *   measure disk DEVICE MEBIBYTES SECONDS
 *   measure tcp ADDRESS PORT SECONDS        sends, then receives (the peer sinks the first byte 's', sources 'r')
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (1 << 20)
#define SMALL 4096

static void fail(const char *what)
{
    printf("MEASURE error=%s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void sequential(int disk, char *buffer, long blocks, int writes)
{
    double start = now();
    for (long i = 0; i < blocks; i++) {
        ssize_t done = writes ? pwrite(disk, buffer, BLOCK, (off_t)i * BLOCK) : pread(disk, buffer, BLOCK, (off_t)i * BLOCK);
        if (done != BLOCK)
            fail("disk");
    }
    if (writes && fdatasync(disk))
        fail("sync");
    printf("MEASURE sequential-%s=%.0f\n", writes ? "write" : "read", blocks * 1024 / (now() - start));
}

static void random_places(int disk, char *buffer, long blocks, double seconds, int writes)
{
    uint64_t state = 88172645463325252ull, places = (uint64_t)blocks * (BLOCK / SMALL);
    double start = now(), end = start + seconds;
    long count = 0;
    while (now() < end) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        off_t place = (off_t)(state % places) * SMALL;
        ssize_t done = writes ? pwrite(disk, buffer, SMALL, place) : pread(disk, buffer, SMALL, place);
        if (done != SMALL)
            fail("disk");
        count++;
    }
    printf("MEASURE random-%s=%.0f\n", writes ? "write" : "read", count / (now() - start));
}

static void disk(const char *device, long blocks, double seconds)
{
    int file = open(device, O_RDWR | O_DIRECT);
    void *buffer;
    if (file < 0 || posix_memalign(&buffer, SMALL, BLOCK))
        fail("open");
    memset(buffer, 0xa5, BLOCK);
    for (int writes = 1; writes >= 0; writes--)
        sequential(file, buffer, blocks, writes);
    for (int writes = 1; writes >= 0; writes--)
        random_places(file, buffer, blocks, seconds, writes);
}

static void tcp(const char *address, int port, double seconds)
{
    static char buffer[256 << 10];
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &peer.sin_addr);
    for (int receives = 0; receives < 2; receives++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (struct sockaddr *)&peer, sizeof peer) || write(s, receives ? "r" : "s", 1) != 1)
            fail("connect");
        double start = now(), end = start + seconds, bytes = 0;
        while (now() < end) {
            ssize_t done = receives ? read(s, buffer, sizeof buffer) : write(s, buffer, sizeof buffer);
            if (done <= 0)
                fail("stream");
            bytes += done;
        }
        printf("MEASURE tcp-%s=%.0f\n", receives ? "receive" : "send", bytes / 1024 / (now() - start));
        close(s);
    }
}

int main(int count, char **words)
{
    if (count == 5 && !strcmp(words[1], "disk"))
        disk(words[2], atol(words[3]), atof(words[4]));
    else if (count == 5 && !strcmp(words[1], "tcp"))
        tcp(words[2], atoi(words[3]), atof(words[4]));
    else
        fail("usage");
    return 0;
}
