/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded into a rank: spoils what btl xrc publishes about itself (PMIx_Put of its modex blob).
 * XRC_MODEX_FAULT: short (half of it), empty, long (as much again behind it), foreign (other bytes of the same length),
 * or flip:N (byte N inverted). */
#include <dlfcn.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void spoil(const char *fault, unsigned char *bytes, size_t *size)
{
    if (!strcmp(fault, "short"))
        *size /= 2;
    else if (!strcmp(fault, "empty"))
        *size = 0;
    else if (!strcmp(fault, "long"))
        *size *= 2;
    else if (!strcmp(fault, "foreign"))
        memset(bytes, 'x', *size);
    else if (!strncmp(fault, "flip:", 5) && (size_t) atoi(fault + 5) < *size)
        bytes[atoi(fault + 5)] ^= 0xff;
    else
        fprintf(stderr, "modex_fault: what is XRC_MODEX_FAULT=%s?\n", fault), abort();
}

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value)
{
    pmix_status_t (*real)(pmix_scope_t, const char *, pmix_value_t *) =
        (pmix_status_t(*)(pmix_scope_t, const char *, pmix_value_t *)) dlsym(RTLD_NEXT, "PMIx_Put");
    const char *fault = getenv("XRC_MODEX_FAULT");
    pmix_value_t spoilt = *value;
    size_t size = value->data.bo.size;

    if (!fault || !strstr(key, "btl.xrc") || value->type != PMIX_BYTE_OBJECT)
        return real(scope, key, value);
    unsigned char *bytes = calloc(2, size);
    memcpy(bytes, value->data.bo.bytes, size);
    spoil(fault, bytes, &size);
    spoilt.data.bo.bytes = (char *) bytes;
    spoilt.data.bo.size = size;
    pmix_status_t status = real(scope, key, &spoilt);
    free(bytes);
    return status;
}
