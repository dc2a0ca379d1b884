//go:build linux && cgo

// Finding the libraries at run time.

#include "shim.h"
#include "shim_table.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef RK_HAVE_RDMA

#include <dlfcn.h>

#define RK_DEFINE(ret, fn, args) ret(*p_##fn) args;
ABI_VERBS(RK_DEFINE)
ABI_CM(RK_DEFINE)
ssize_t (*p_ibv_query_gid_table)(ABI(ibv_context) *, void *, size_t, uint32_t, size_t);

struct symbol {
	const char *name;
	void **slot;
	int optional;
};

#define RK_SYMBOL(ret, fn, args) {#fn, (void **)&p_##fn, 0},
static const struct symbol verbs[] = {
	ABI_VERBS(RK_SYMBOL){"_ibv_query_gid_table", (void **)&p_ibv_query_gid_table, 1}, {NULL, NULL, 0}};
static const struct symbol cm[] = {ABI_CM(RK_SYMBOL){NULL, NULL, 0}};

// The library reads it once, at its first call. With it, destroying what was made
// on a device that has been removed succeeds; without it each call fails with EIO
// for ever, and the device can be neither closed nor opened anew.
//
// setenv moves the environment under a getenv of another thread (glibc before
// 2.41), hence once, and not at all where the variable is set already.
void rk_prepare(void)
{
	if (!getenv("RDMAV_ALLOW_DISASSOC_DESTROY"))
		setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0);
}

// The library stays open for good: its objects and its threads' state would
// outlive any dlclose.
int rk_load(int table, const char *soname, char *err, size_t room)
{
	const struct symbol *all = table == RK_TABLE_CM ? cm : verbs, *s;
	void *lib;

	lib = dlopen(soname, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		const char *why = dlerror();
		snprintf(err, room, "%s", why ? why : "unknown error");
		return RK_NO_LIBRARY;
	}
	// Nothing is set before everything was found.
	for (s = all; s->name; s++) {
		if (!s->optional && !dlsym(lib, s->name)) {
			snprintf(err, room, "%s", s->name);
			dlclose(lib);
			return RK_NO_SYMBOL;
		}
	}
	// dlsym gives each function's default version.
	for (s = all; s->name; s++)
		*s->slot = dlsym(lib, s->name);
	return RK_LOADED;
}

#else

void rk_prepare(void)
{
}

int rk_load(int table, const char *soname, char *err, size_t room)
{
	(void)table;
	(void)soname;
	snprintf(err, room, "built for a system that is neither amd64 nor arm64");
	return RK_NO_LAYOUT;
}

#endif
