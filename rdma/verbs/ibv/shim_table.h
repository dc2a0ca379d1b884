// What the shim's C files share: the functions of the two libraries, looked up
// at run time. Nothing may call one of them by its own name: that would link
// the program with the library.
#ifndef RK_SHIM_TABLE_H
#define RK_SHIM_TABLE_H

// The layouts of abi.h have been compared with rdma-core on these systems only.
#if !defined(RK_STUB) && __SIZEOF_POINTER__ == 8 && (defined(__x86_64__) || defined(__aarch64__))
#define RK_HAVE_RDMA 1
#endif

#ifdef RK_HAVE_RDMA

#include <errno.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "abi.h"
#include "abi_constants.h"

#define ABI(name) union abi_##name
#define ABI_ENUM(name) int
#define ABI_BE64 uint64_t
#define ABI_BE16 uint16_t
#include "abi_calls.h"

// Objects of which nothing is looked at. The function ibv_query_port, which old
// providers have, fills in what ibv_port_attr begins with.
ABI(ibv_pd);
ABI(_compat_ibv_port_attr);

#define RK_DECLARE(ret, fn, args) extern ret(*p_##fn) args;
ABI_VERBS(RK_DECLARE)
ABI_CM(RK_DECLARE)

// New in rdma-core 32: null if the library does not have it.
extern ssize_t (*p_ibv_query_gid_table)(ABI(ibv_context) *, void *, size_t, uint32_t, size_t);

// op_poll_cq and its like are the provider's calls of the data path.
#define RK_OP(ret, op, args)                                                   \
	typedef ret(*fn_##op) args;                                            \
	static inline fn_##op op_##op(void *context)                           \
	{                                                                      \
		return (fn_##op)((ABI(ibv_context) *)context)->ops_##op;       \
	}
ABI_OPS(RK_OP)

// rk_errno makes an errno of what a function of either library returned: some
// return it, some its negative, and some -1 and set errno.
static inline int rk_errno(int ret)
{
	if (ret >= 0)
		return ret;
	if (ret < -1)
		return -ret;
	return errno ? errno : EIO;
}

// rk_failed is the errno of a function that returned no object.
static inline int rk_failed(void)
{
	return errno ? errno : EIO;
}

// rk_spin is rk_spin_cq by a provider's function that was looked up before.
int rk_spin(ABI(ibv_cq) *cq, fn_poll_cq poll_cq, struct rk_wc *wcs, int n, int64_t ns, int yield);

void rk_attr_from_ibv(struct rk_qp_attr *out, const ABI(ibv_qp_attr) *in);

#endif
#endif
