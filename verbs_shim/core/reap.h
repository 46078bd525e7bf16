/* What becomes of the objects of a process that died or left: what the kernel does at the last close of the device file. The hooks
 * of process.h. */
#ifndef VS_REAP_H
#define VS_REAP_H

#include <stdbool.h>
#include <stdint.h>

void vs_reap_retire(uint32_t proc_id);
void vs_reap_free(uint32_t proc_id);

/* The same for what one context of this process still has, in two steps: the caller's own records go in between. false: nothing was
 * left. */
bool vs_reap_context_retire(uint32_t context);
void vs_reap_context_free(uint32_t context);

/* Destroy TGT QPs without handles (tgt_exit=orphan leaves them), and domains without users. */
void vs_reap_orphans(void);

#endif
