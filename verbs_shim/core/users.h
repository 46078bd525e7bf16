/* Who uses an object? Counted from the tables when asked, never stored: a count that does not exist cannot be left wrong by a
 * process that dies. Control lock held. */
#ifndef VS_USERS_H
#define VS_USERS_H

#include <stdbool.h>
#include <stdint.h>

bool vs_pd_in_use(uint32_t pd);           /* by a QP, SRQ or MR */
bool vs_cq_in_use(uint32_t cq);           /* by a QP or XRC SRQ */
bool vs_srq_in_use(uint32_t srq);         /* by a QP made with it */
bool vs_xrcd_ref_in_use(uint32_t ref);    /* by an XRC SRQ or TGT handle made through it */
bool vs_xrcd_in_use(uint32_t xrcd);       /* by a handle, an XRC SRQ or a TGT QP */
bool vs_tgt_in_use(uint32_t qpn);         /* by a handle */

#endif
