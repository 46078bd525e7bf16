/* SPDX-License-Identifier: BSD-3-Clause */
/* What the doctor found: lines for people, printed as they come, or one JSON object at the end. */
#ifndef XRC_DOCTOR_REPORT_H
#define XRC_DOCTOR_REPORT_H

#include <stdbool.h>

#include <cjson/cJSON.h>

enum level { GOOD, POOR, BAD };

void report_begin(bool json);

/**
 * One finding: the check made on a host, device or port, and how it is. The advice says what to change; NULL: nothing
 * has to be.
 */
void report(enum level level, const char *about, const char *check, const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/** Facts about the host, and about a device: objects to add to. */
cJSON *report_host(void);
cJSON *report_device(const char *name, bool software);

/** This port can be used. */
void report_usable(const char *port, bool software);
unsigned report_usable_ports(void);

/** The verdict, and all of it as JSON. Returns the exit status. */
int report_end(void);

#endif
