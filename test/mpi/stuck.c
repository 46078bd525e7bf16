/* SPDX-License-Identifier: BSD-3-Clause */
#include "stuck.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Made beforehand: a signal handler may not format. */
static char line[256];

static void stuck(int signo)
{
    (void) signo;
    (void) !write(STDERR_FILENO, line, strlen(line));
    _exit(3);
}

void stuck_after(unsigned seconds, const char *format, ...)
{
    va_list args;
    alarm(0);
    va_start(args, format);
    vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    strcat(line, "\n");
    signal(SIGALRM, stuck);
    alarm(seconds);
}
