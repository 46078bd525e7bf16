/* SPDX-License-Identifier: BSD-3-Clause */
#include "pvar.h"

#include <mpi.h>
#include <stdio.h>

enum { MOST = 8 };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handle[MOST];

/* One asks by name and class. False: there is none; Open MPI 4.1.4 crashes when asked for a handle on it. */
static bool find(const char *name, int *index)
{
    static const int class[] = {MPI_T_PVAR_CLASS_LEVEL, MPI_T_PVAR_CLASS_COUNTER, MPI_T_PVAR_CLASS_HIGHWATERMARK,
                                MPI_T_PVAR_CLASS_LOWWATERMARK};
    char full[64];
    snprintf(full, sizeof full, "btl_xrc_%s", name);
    for (unsigned i = 0; i < sizeof class / sizeof class[0]; i++)
        if (MPI_T_pvar_get_index(full, class[i], index) == MPI_SUCCESS)
            return true;
    return false;
}

bool pvars_open(const char *const *names, int n)
{
    int provided, index, count;
    bool good = n <= MOST && MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS;
    if (!good)
        return false;
    good = MPI_T_pvar_session_create(&session) == MPI_SUCCESS;
    for (int i = 0; good && i < n; i++)
        good =
            find(names[i], &index) && MPI_T_pvar_handle_alloc(session, index, NULL, &handle[i], &count) == MPI_SUCCESS;
    if (!good)
        pvars_close();
    return good;
}

unsigned long long pvar_value(int index)
{
    unsigned long long value = 0;
    MPI_T_pvar_read(session, handle[index], &value);
    return value;
}

/* The session takes its handles with it. */
void pvars_close(void)
{
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
}
