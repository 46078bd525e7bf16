/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static cJSON *tree, *host, *checks, *devices, *usable;
static bool as_json, hardware;

void report_begin(bool json)
{
    as_json = json;
    tree = cJSON_CreateObject();
    host = cJSON_AddObjectToObject(tree, "host");
    devices = cJSON_AddArrayToObject(tree, "devices");
    checks = cJSON_AddArrayToObject(tree, "checks");
    usable = cJSON_CreateArray();
}

void report(enum level level, const char *about, const char *check, const char *advice, const char *format, ...)
{
    static const char *const shown[] = {[GOOD] = "OK", [POOR] = "warn", [BAD] = "bad"};
    static const char *const names[] = {[GOOD] = "ok", [POOR] = "warn", [BAD] = "bad"};
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!as_json) {
        printf("%-5s %s: %s: %s\n", shown[level], about, check, text);
        if (NULL != advice) {
            printf("      -> %s\n", advice);
        }
        fflush(stdout);
    }
    cJSON *one = cJSON_CreateObject();
    cJSON_AddItemToArray(checks, one);
    cJSON_AddStringToObject(one, "level", names[level]);
    cJSON_AddStringToObject(one, "about", about);
    cJSON_AddStringToObject(one, "check", check);
    cJSON_AddStringToObject(one, "text", text);
    if (NULL != advice) {
        cJSON_AddStringToObject(one, "advice", advice);
    }
}

cJSON *report_host(void)
{
    return host;
}

cJSON *report_device(const char *name, bool software)
{
    cJSON *one = cJSON_CreateObject();
    cJSON_AddItemToArray(devices, one);
    cJSON_AddStringToObject(one, "name", name);
    cJSON_AddBoolToObject(one, "software", software);
    return one;
}

void report_usable(const char *port, bool software)
{
    cJSON_AddItemToArray(usable, cJSON_CreateString(port));
    hardware = hardware || !software;
}

unsigned report_usable_ports(void)
{
    return (unsigned) cJSON_GetArraySize(usable);
}

static const char *verdict(bool runs)
{
    return !runs      ? "btl xrc does not run on this host, see what is bad above"
           : hardware ? "btl xrc runs on this host"
                      : "btl xrc runs on this host with the software HCA alone";
}

static void print_verdict(bool runs)
{
    const cJSON *port;
    printf("\n%s%s", verdict(runs), runs ? ":" : "");
    cJSON_ArrayForEach(port, usable)
    {
        printf(" %s", port->valuestring);
    }
    putchar('\n');
}

static void print_tree(bool runs)
{
    cJSON_AddBoolToObject(tree, "runs", runs);
    cJSON_AddBoolToObject(tree, "software_only", runs && !hardware);
    cJSON_AddStringToObject(tree, "verdict", verdict(runs));
    cJSON_AddItemReferenceToObject(tree, "ports", usable);
    char *text = cJSON_Print(tree);
    puts(NULL != text ? text : "{}");
    free(text);
}

int report_end(void)
{
    bool runs = report_usable_ports() > 0;
    if (as_json) {
        print_tree(runs);
    } else {
        print_verdict(runs);
    }
    cJSON_Delete(tree);
    cJSON_Delete(usable);
    return runs ? 0 : 1;
}
