/* What vshim's main file gives the orders and plans, for the fuzzer's builds without it. */
#include "tools/tool.h"

#include "core/context.h"

int vshim_attach(void)
{
	return vs_attach_observer();
}
