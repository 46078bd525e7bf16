/* Commands that look at the fabric and print what they saw, as text or with --json as JSON. */
#ifndef VSHIM_REPORT_H
#define VSHIM_REPORT_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Handle the command line, join the fabric, let look build the tree (there: false where nobody uses a software HCA; else the control lock
 * is held), leave, and print it; text prints what was not printed as JSON. Returns the exit status: text's answer, 1 if the fabric cannot be looked at, 2 for a bad command line. */
int vshim_report(int argc, char **argv, cJSON *(*look)(bool there), int (*text)(const cJSON *tree, bool printed));

#endif
