#include "tools/report.h"

#include <errno.h>

#include "core/context.h"
#include "tools/answer.h"
#include "tools/tool.h"

static cJSON *look_at_fabric(cJSON *(*look)(bool there), bool there)
{
	cJSON *tree;

	if (!there)
		return look(false);
	vs_process_bury();
	vs_control_lock();
	tree = look(true);
	vs_control_unlock();
	vs_detach();
	return tree;
}

int vshim_report(int argc, char **argv, cJSON *(*look)(bool there), int (*text)(const cJSON *tree, bool printed))
{
	bool json = vshim_answer_open(&argc, argv);
	cJSON *tree;
	int err, status;

	if (argc > 1) {
		vshim_refuse(EINVAL, "usage: vshim %s [--json]", argv[0]);
		return vshim_answer_close(2);
	}
	err = vshim_attach();
	if (err && err != ENOENT)
		return vshim_answer_close(1);
	vshim_answer_drop();
	tree = look_at_fabric(look, err == 0);
	if (json)
		vshim_print_json(tree);
	status = text(tree, json);
	cJSON_Delete(tree);
	return status;
}
