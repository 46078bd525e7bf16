/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank of the target's domain does when it is asked for an alternate, as the model has it: FOUND(what it finds, action). */
FOUND(SPENT, LOAD)
FOUND(WAITING, LOAD)
FOUND(HAS_IT, AGREE)
FOUND(BEHIND, FOLLOW)
FOUND(IN_USE, REFUSE)
FOUND(ELSEWISE, REFUSE)
