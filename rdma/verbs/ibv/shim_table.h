// What the shim's C files share: the functions of the two libraries, looked up
// at run time. Nothing may call one of them by its own name: that would link
// the program with the library, and some of the names (ibv_reg_mr,
// ibv_query_port, ibv_get_device_list) are macros that do so silently.
#ifndef RK_SHIM_TABLE_H
#define RK_SHIM_TABLE_H

#if !defined(RK_NO_RDMA_HEADERS) && defined(__has_include)
#if __has_include(<infiniband/verbs.h>) && __has_include(<rdma/rdma_cma.h>)
#define RK_HAVE_RDMA 1
#endif
#endif

#ifdef RK_HAVE_RDMA

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/types.h>

#define RK_VERBS(X)              \
	X(ibv_get_device_list)   \
	X(ibv_free_device_list)  \
	X(ibv_get_device_guid)   \
	X(ibv_open_device)       \
	X(ibv_close_device)      \
	X(ibv_query_device)      \
	X(ibv_query_port)        \
	X(ibv_query_pkey)        \
	X(ibv_get_async_event)   \
	X(ibv_ack_async_event)   \
	X(ibv_alloc_pd)          \
	X(ibv_dealloc_pd)        \
	X(ibv_reg_mr)            \
	X(ibv_dereg_mr)          \
	X(ibv_create_comp_channel)  \
	X(ibv_destroy_comp_channel) \
	X(ibv_get_cq_event)      \
	X(ibv_ack_cq_events)     \
	X(ibv_create_cq)         \
	X(ibv_destroy_cq)        \
	X(ibv_create_srq)        \
	X(ibv_modify_srq)        \
	X(ibv_destroy_srq)       \
	X(ibv_create_qp)         \
	X(ibv_modify_qp)         \
	X(ibv_query_qp)          \
	X(ibv_destroy_qp)

#define RK_CM(X)                      \
	X(rdma_create_event_channel)  \
	X(rdma_destroy_event_channel) \
	X(rdma_get_cm_event)          \
	X(rdma_ack_cm_event)          \
	X(rdma_create_id)             \
	X(rdma_destroy_id)            \
	X(rdma_bind_addr)             \
	X(rdma_listen)                \
	X(rdma_resolve_addr)          \
	X(rdma_resolve_route)         \
	X(rdma_init_qp_attr)          \
	X(rdma_connect)               \
	X(rdma_accept)                \
	X(rdma_reject)                \
	X(rdma_establish)             \
	X(rdma_disconnect)            \
	X(rdma_set_option)            \
	X(rdma_migrate_id)

#define RK_DECLARE(fn) extern typeof(fn) *p_##fn;
RK_VERBS(RK_DECLARE)
RK_CM(RK_DECLARE)

// New in rdma-core 32: null if the library does not have it.
extern ssize_t (*p_ibv_query_gid_table)(struct ibv_context *, void *, size_t, uint32_t, size_t);

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

void rk_attr_from_ibv(struct rk_qp_attr *out, const struct ibv_qp_attr *in);

#endif
#endif
