/* What the kernel asks of a process before it does something for it. */
#ifndef VS_CAPABLE_H
#define VS_CAPABLE_H

#include <stdbool.h>

/* capable() of the kernel: has this process the capability (CAP_...) in the initial user namespace, whatever it may do in one of its own?
 * Where no /proc tells the namespace the capability is believed. */
bool vs_capable(unsigned capability);

#endif
