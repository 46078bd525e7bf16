/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BTL_XRC_MODULE_H
#define BTL_XRC_MODULE_H

#include "btl_xrc.h"

/** Defaults of all modules, and where the base parameters are kept. */
extern mca_btl_xrc_module_t mca_btl_xrc_module;

int mca_btl_xrc_finalize(mca_btl_base_module_t *btl);

/** Take @a module out of the component's list. */
void xrc_component_forget(const mca_btl_xrc_module_t *module);

#endif
