/* The first process of a node's namespaces, and of each pod's sandbox: waits, reaps, ends when told to. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction ends = {.sa_handler = end}, reaps = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &ends, NULL);
  sigaction(SIGTERM, &ends, NULL);
  sigaction(SIGCHLD, &reaps, NULL);
  for (;;) pause();
}
