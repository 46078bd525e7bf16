/* vshim: looks at the fabric from outside, and orders faults. */
#ifndef VSHIM_TOOL_H
#define VSHIM_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vs_hca_shm;

/* Commands: each returns the exit status. argv[0] is the command's own name. */
int vshim_list(int argc, char **argv);
int vshim_hosts(int argc, char **argv);
int vshim_counters(int argc, char **argv);
int vshim_check(int argc, char **argv);
int vshim_order(int argc, char **argv); /* any of the orders in order.c */
int vshim_with(int argc, char **argv);
int vshim_plan(int argc, char **argv);

/* Join the fabric to look at it, or say why not: 0, ENOENT (nobody uses a software HCA; nothing said), or an errno value. */
int vshim_attach(void);

/* Carry out one order on the attached fabric. 0; 1 after a message about what is wrong with it. */
int vshim_run_order(int argc, char **argv);

/* Split a line into words, in place; '#' begins a comment. Returns how many, less than max; NULL comes behind them. */
#define VSHIM_WORDS 32
int vshim_split(char *line, char **words, int max);

/* Usage lines of every order, each with this indent. */
void vshim_order_usage(const char *indent);

/* ---- where.c: HOST, HOST/DEV, HOST/DEV/PORT or all ---- */

/* Call f with the slot number of every port that text names, but for those of unplugged HCAs. Returns how many; 0 after a message. Control
 * lock held by the caller. */
unsigned vshim_each_port(const char *text, void (*f)(uint32_t port_index, void *arg), void *arg);

/* The same with HCAs, plugged in or not. */
unsigned vshim_each_hca(const char *text, void (*f)(struct vs_hca_shm *hca));

/* Slot number of the host of this name; -1 after a message. */
int vshim_host(const char *name);

/* A name of the segment, which need not end where its field does. One of two static buffers. */
const char *vshim_text(const char *name, size_t size);

/* "h0/vshim0/1"; a static buffer. */
const char *vshim_port_name(uint32_t port_index);

#endif
