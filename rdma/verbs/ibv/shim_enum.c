//go:build linux && cgo

// The enumeration constants of abi_constants.h, for the test that compares them
// with those of the Go side.

#include "shim.h"
#include "shim_table.h"

#ifdef RK_HAVE_RDMA

#define C(name, value) {#name, value},

static const struct {
	const char *name;
	int64_t value;
} constants[] = {ABI_CONSTANTS(C)};

int rk_constant(int i, const char **name, int64_t *value)
{
	if (i < 0 || i >= (int)(sizeof constants / sizeof constants[0]))
		return 0;
	*name = constants[i].name;
	*value = constants[i].value;
	return 1;
}

#else

int rk_constant(int i, const char **name, int64_t *value)
{
	(void)i;
	(void)name;
	(void)value;
	return 0;
}

#endif
