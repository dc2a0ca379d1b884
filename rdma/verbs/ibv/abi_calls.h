// The functions of the two libraries that the shim calls, with their types: ABI(x)
// is struct x of the library. TestABI compares them with rdma-core's headers.
#ifndef RK_ABI_CALLS_H
#define RK_ABI_CALLS_H

#define ABI_VERBS(X) \
	X(ABI(ibv_device) **, ibv_get_device_list, (int *)) \
	X(void, ibv_free_device_list, (ABI(ibv_device) **)) \
	X(ABI_BE64, ibv_get_device_guid, (ABI(ibv_device) *)) \
	X(ABI(ibv_context) *, ibv_open_device, (ABI(ibv_device) *)) \
	X(int, ibv_close_device, (ABI(ibv_context) *)) \
	X(int, ibv_query_device, (ABI(ibv_context) *, ABI(ibv_device_attr) *)) \
	X(int, ibv_query_port, (ABI(ibv_context) *, uint8_t, ABI(_compat_ibv_port_attr) *)) \
	X(int, ibv_query_pkey, (ABI(ibv_context) *, uint8_t, int, ABI_BE16 *)) \
	X(int, ibv_get_async_event, (ABI(ibv_context) *, ABI(ibv_async_event) *)) \
	X(void, ibv_ack_async_event, (ABI(ibv_async_event) *)) \
	X(ABI(ibv_pd) *, ibv_alloc_pd, (ABI(ibv_context) *)) \
	X(int, ibv_dealloc_pd, (ABI(ibv_pd) *)) \
	X(ABI(ibv_mr) *, ibv_reg_mr, (ABI(ibv_pd) *, void *, size_t, int)) \
	X(int, ibv_dereg_mr, (ABI(ibv_mr) *)) \
	X(ABI(ibv_comp_channel) *, ibv_create_comp_channel, (ABI(ibv_context) *)) \
	X(int, ibv_destroy_comp_channel, (ABI(ibv_comp_channel) *)) \
	X(int, ibv_get_cq_event, (ABI(ibv_comp_channel) *, ABI(ibv_cq) **, void **)) \
	X(void, ibv_ack_cq_events, (ABI(ibv_cq) *, unsigned int)) \
	X(ABI(ibv_cq) *, ibv_create_cq, (ABI(ibv_context) *, int, void *, ABI(ibv_comp_channel) *, int)) \
	X(int, ibv_destroy_cq, (ABI(ibv_cq) *)) \
	X(ABI(ibv_srq) *, ibv_create_srq, (ABI(ibv_pd) *, ABI(ibv_srq_init_attr) *)) \
	X(int, ibv_modify_srq, (ABI(ibv_srq) *, ABI(ibv_srq_attr) *, int)) \
	X(int, ibv_destroy_srq, (ABI(ibv_srq) *)) \
	X(ABI(ibv_qp) *, ibv_create_qp, (ABI(ibv_pd) *, ABI(ibv_qp_init_attr) *)) \
	X(int, ibv_modify_qp, (ABI(ibv_qp) *, ABI(ibv_qp_attr) *, int)) \
	X(int, ibv_query_qp, (ABI(ibv_qp) *, ABI(ibv_qp_attr) *, int, ABI(ibv_qp_init_attr) *)) \
	X(int, ibv_destroy_qp, (ABI(ibv_qp) *))

#define ABI_CM(X) \
	X(ABI(rdma_event_channel) *, rdma_create_event_channel, (void)) \
	X(void, rdma_destroy_event_channel, (ABI(rdma_event_channel) *)) \
	X(int, rdma_get_cm_event, (ABI(rdma_event_channel) *, ABI(rdma_cm_event) **)) \
	X(int, rdma_ack_cm_event, (ABI(rdma_cm_event) *)) \
	X(int, rdma_create_id, (ABI(rdma_event_channel) *, ABI(rdma_cm_id) **, void *, ABI_ENUM(rdma_port_space))) \
	X(int, rdma_destroy_id, (ABI(rdma_cm_id) *)) \
	X(int, rdma_bind_addr, (ABI(rdma_cm_id) *, struct sockaddr *)) \
	X(int, rdma_listen, (ABI(rdma_cm_id) *, int)) \
	X(int, rdma_resolve_addr, (ABI(rdma_cm_id) *, struct sockaddr *, struct sockaddr *, int)) \
	X(int, rdma_resolve_route, (ABI(rdma_cm_id) *, int)) \
	X(int, rdma_init_qp_attr, (ABI(rdma_cm_id) *, ABI(ibv_qp_attr) *, int *)) \
	X(int, rdma_connect, (ABI(rdma_cm_id) *, ABI(rdma_conn_param) *)) \
	X(int, rdma_accept, (ABI(rdma_cm_id) *, ABI(rdma_conn_param) *)) \
	X(int, rdma_reject, (ABI(rdma_cm_id) *, const void *, uint8_t)) \
	X(int, rdma_establish, (ABI(rdma_cm_id) *)) \
	X(int, rdma_disconnect, (ABI(rdma_cm_id) *)) \
	X(int, rdma_set_option, (ABI(rdma_cm_id) *, int, int, void *, size_t)) \
	X(int, rdma_migrate_id, (ABI(rdma_cm_id) *, ABI(rdma_event_channel) *))

// The calls of the data path are no functions of the library but pointers in
// ibv_context, which the provider has set.
#define ABI_OPS(X) \
	X(int, poll_cq, (ABI(ibv_cq) *, int, ABI(ibv_wc) *)) \
	X(int, req_notify_cq, (ABI(ibv_cq) *, int)) \
	X(int, post_srq_recv, (ABI(ibv_srq) *, ABI(ibv_recv_wr) *, ABI(ibv_recv_wr) **)) \
	X(int, post_send, (ABI(ibv_qp) *, ABI(ibv_send_wr) *, ABI(ibv_send_wr) **)) \
	X(int, post_recv, (ABI(ibv_qp) *, ABI(ibv_recv_wr) *, ABI(ibv_recv_wr) **))

#endif
