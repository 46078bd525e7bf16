/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A put into memory that its owner could not register, whose owner does not answer and is then taken out of the transport: it ends,
 * with an error. Rank 1 owns the memory; the HCA must refuse to register it.
 *
 * usage: mpi_areas FILE
 * FILE: made by rank 0 at the end; rank 1 calls nothing of MPI before. FILE.ready: made by rank 1 when it begins to wait for that.
 * Exit status: 0 all right, 1 not so, 2 wrong use, 3 stuck, 77 without Open MPI's inner headers.
 */
#include <mpi.h>
#include <stdio.h>

#if defined(__has_include)
#    if __has_include("ompi/mca/pml/pml.h")
#        define HAVE_PML 1
#    endif
#endif

#ifdef HAVE_PML
#    include "ompi_config.h"
#    include "ompi/mca/pml/pml.h"
#    include "ompi/communicator/communicator.h"
#    include "ompi/proc/proc.h"
#    include "opal/mca/btl/base/base.h"
#    include "opal/mca/btl/btl.h"
#    include "opal/runtime/opal_progress.h"

#    include "stuck.h"

#    include <fcntl.h>
#    include <stdlib.h>
#    include <string.h>
#    include <time.h>
#    include <unistd.h>

enum { STUCK_AFTER = 60, BYTES = 1 << 20, HANDLE = 16, MOST = 64 };

static int ended, status;

static void fail(const char *what)
{
    fprintf(stderr, "mpi_areas: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static mca_btl_base_module_t *xrc_module(void)
{
    mca_btl_base_selected_module_t *selected;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        if (0 == strcmp("xrc", selected->btl_component->btl_version.mca_component_name))
            return selected->btl_module;
    }
    fail("no btl xrc");
    return NULL;
}

static void put_ended(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                      mca_btl_base_registration_handle_t *handle, void *context, void *data, int how)
{
    (void) btl, (void) endpoint, (void) local, (void) handle, (void) context, (void) data;
    ++ended;
    status = how;
}

static void make_file(const char *name)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        fail(name);
    close(fd);
}

static void put_and_lose(const char *file)
{
    mca_btl_base_module_t *btl = xrc_module();
    struct mca_btl_base_endpoint_t *endpoint = NULL;
    ompi_proc_t *peer = ompi_comm_peer_lookup(MPI_COMM_WORLD, 1);
    uint64_t remote[1 + HANDLE / 8];
    char *data = calloc(1, BYTES), ready[4096];
    snprintf(ready, sizeof ready, "%s.ready", file);
    MPI_Recv(remote, sizeof remote, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD); /* only who has been sent to is in the PML's lists */
    while (0 != access(ready, F_OK))
        opal_progress();
    btl->btl_add_procs(btl, 1, (opal_proc_t *[]){&peer->super}, &endpoint, NULL);
    mca_btl_base_registration_handle_t *mine = btl->btl_register_mem(btl, endpoint, data, BYTES, 0);
    if (NULL == endpoint || NULL == mine)
        fail("no peer, or no handle");
    if (OPAL_SUCCESS
        != btl->btl_put(btl, endpoint, data, remote[0], mine, (mca_btl_base_registration_handle_t *) &remote[1], BYTES,
                        0, MCA_BTL_NO_ORDER, put_ended, NULL, NULL))
        fail("the put was refused");
    for (int i = 0; i < 1000; ++i)
        opal_progress();
    if (ended)
        fail("ended, and nobody can have answered");
    if (OMPI_SUCCESS != MCA_PML_CALL(del_procs(&peer, 1)))
        fail("del_procs");
    while (!ended)
        opal_progress();
    btl->btl_deregister_mem(btl, mine);
    if (1 != ended || OPAL_SUCCESS == status)
        fail("ended as if it had arrived");
    if (OMPI_SUCCESS != MCA_PML_CALL(add_procs(&peer, 1)))
        fail("add_procs");
    make_file(file);
    free(data);
}

static bool is_area(const mca_btl_base_registration_handle_t *handle)
{
    static const uint8_t none[4];
    return NULL != handle && 0 != memcmp((const char *) handle + 8, none, sizeof none);
}

static void own(const char *file)
{
    const struct timespec a_moment = {0, 10000000};
    mca_btl_base_module_t *btl = xrc_module();
    mca_btl_base_registration_handle_t *handle[MOST] = {NULL};
    uint64_t remote[1 + HANDLE / 8];
    char *data[MOST] = {NULL}, ready[4096];
    int last = -1;
    /* Until the HCA has had enough. */
    do {
        if (++last == MOST || HANDLE != btl->btl_registration_handle_size)
            fail("the memory was to be refused");
        data[last] = calloc(1, BYTES);
        handle[last] = btl->btl_register_mem(btl, NULL, data[last], BYTES,
                                             MCA_BTL_REG_FLAG_LOCAL_WRITE | MCA_BTL_REG_FLAG_REMOTE_WRITE);
    } while (!is_area(handle[last]));
    remote[0] = (uint64_t) (uintptr_t) data[last];
    memcpy(&remote[1], handle[last], HANDLE);
    MPI_Send(remote, sizeof remote, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    snprintf(ready, sizeof ready, "%s.ready", file);
    make_file(ready);
    while (0 != access(file, F_OK))
        nanosleep(&a_moment, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i <= last; ++i) {
        btl->btl_deregister_mem(btl, handle[i]);
        free(data[i]);
    }
}

int main(int argc, char **argv)
{
    int rank;
    if (2 != argc) {
        fprintf(stderr, "usage: mpi_areas FILE\n");
        return 2;
    }
    stuck_after(STUCK_AFTER, "mpi_areas: stuck");
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (1 == rank) {
        own(argv[1]);
    } else {
        put_and_lose(argv[1]);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
#else
int main(void)
{
    fprintf(stderr, "mpi_areas: this Open MPI has no inner headers\n");
    return 77;
}
#endif
