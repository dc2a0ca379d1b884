//go:build linux && cgo

package ibv

import "testing"

// goConstants are the constants of Go under the names of rdma-core.
var goConstants = map[string]int64{
	"IBV_PORT_NOP": int64(PortNop), "IBV_PORT_DOWN": int64(PortDown), "IBV_PORT_INIT": int64(PortInit),
	"IBV_PORT_ARMED": int64(PortArmed), "IBV_PORT_ACTIVE": int64(PortActive), "IBV_PORT_ACTIVE_DEFER": int64(PortActiveDefer),
	"IBV_MTU_256": int64(MTU256), "IBV_MTU_512": int64(MTU512), "IBV_MTU_1024": int64(MTU1024),
	"IBV_MTU_2048": int64(MTU2048), "IBV_MTU_4096": int64(MTU4096),
	"IBV_LINK_LAYER_UNSPECIFIED": int64(LinkUnspecified), "IBV_LINK_LAYER_INFINIBAND": int64(LinkInfiniBand),
	"IBV_LINK_LAYER_ETHERNET": int64(LinkEthernet),
	"IBV_TRANSPORT_UNKNOWN":   int64(TransportUnknown), "IBV_TRANSPORT_IB": int64(TransportIB), "IBV_TRANSPORT_IWARP": int64(TransportIWARP),
	"IBV_ATOMIC_NONE": 0, "IBV_ATOMIC_HCA": 1, "IBV_ATOMIC_GLOB": 2, // as DeviceAttr.AtomicCap says
	"IBV_ACCESS_LOCAL_WRITE": int64(AccessLocalWrite), "IBV_ACCESS_REMOTE_WRITE": int64(AccessRemoteWrite),
	"IBV_ACCESS_REMOTE_READ": int64(AccessRemoteRead), "IBV_ACCESS_REMOTE_ATOMIC": int64(AccessRemoteAtomic),
	"IBV_ACCESS_MW_BIND": int64(AccessMWBind),
	"IBV_QPS_RESET":      int64(QPSReset), "IBV_QPS_INIT": int64(QPSInit), "IBV_QPS_RTR": int64(QPSRTR), "IBV_QPS_RTS": int64(QPSRTS),
	"IBV_QPS_SQD": int64(QPSSQD), "IBV_QPS_SQE": int64(QPSSQE), "IBV_QPS_ERR": int64(QPSErr),
	"IBV_QP_STATE": int64(QPMaskState), "IBV_QP_CUR_STATE": int64(QPMaskCurState),
	"IBV_QP_EN_SQD_ASYNC_NOTIFY": int64(QPMaskEnSQDNotify), "IBV_QP_ACCESS_FLAGS": int64(QPMaskAccessFlags),
	"IBV_QP_PKEY_INDEX": int64(QPMaskPKeyIndex), "IBV_QP_PORT": int64(QPMaskPort), "IBV_QP_QKEY": int64(QPMaskQKey),
	"IBV_QP_AV": int64(QPMaskAV), "IBV_QP_PATH_MTU": int64(QPMaskPathMTU), "IBV_QP_TIMEOUT": int64(QPMaskTimeout),
	"IBV_QP_RETRY_CNT": int64(QPMaskRetryCnt), "IBV_QP_RNR_RETRY": int64(QPMaskRNRRetry), "IBV_QP_RQ_PSN": int64(QPMaskRQPSN),
	"IBV_QP_MAX_QP_RD_ATOMIC": int64(QPMaskMaxQPRdAtomic), "IBV_QP_ALT_PATH": int64(QPMaskAltPath),
	"IBV_QP_MIN_RNR_TIMER": int64(QPMaskMinRNRTimer), "IBV_QP_SQ_PSN": int64(QPMaskSQPSN),
	"IBV_QP_MAX_DEST_RD_ATOMIC": int64(QPMaskMaxDestRdAtomic), "IBV_QP_PATH_MIG_STATE": int64(QPMaskPathMigState),
	"IBV_QP_CAP": int64(QPMaskCap), "IBV_QP_DEST_QPN": int64(QPMaskDestQPN),
	"IBV_WR_RDMA_WRITE": int64(WRRDMAWrite), "IBV_WR_RDMA_WRITE_WITH_IMM": int64(WRRDMAWriteImm), "IBV_WR_SEND": int64(WRSend),
	"IBV_WR_SEND_WITH_IMM": int64(WRSendImm), "IBV_WR_RDMA_READ": int64(WRRDMARead),
	"IBV_WR_ATOMIC_CMP_AND_SWP": int64(WRAtomicCmpSwp), "IBV_WR_ATOMIC_FETCH_AND_ADD": int64(WRAtomicFetchAdd),
	"IBV_WR_LOCAL_INV": int64(WRLocalInv), "IBV_WR_SEND_WITH_INV": int64(WRSendInv),
	"IBV_SEND_FENCE": int64(SendFence), "IBV_SEND_SIGNALED": int64(SendSignaled), "IBV_SEND_SOLICITED": int64(SendSolicited),
	"IBV_SEND_INLINE": int64(SendInline),
	"IBV_WC_SUCCESS":  int64(StatusSuccess), "IBV_WC_LOC_LEN_ERR": int64(StatusLocLenErr), "IBV_WC_LOC_QP_OP_ERR": int64(StatusLocQPOpErr),
	"IBV_WC_LOC_EEC_OP_ERR": int64(StatusLocEECOpErr), "IBV_WC_LOC_PROT_ERR": int64(StatusLocProtErr),
	"IBV_WC_WR_FLUSH_ERR": int64(StatusWRFlushErr), "IBV_WC_MW_BIND_ERR": int64(StatusMWBindErr),
	"IBV_WC_BAD_RESP_ERR": int64(StatusBadRespErr), "IBV_WC_LOC_ACCESS_ERR": int64(StatusLocAccessErr),
	"IBV_WC_REM_INV_REQ_ERR": int64(StatusRemInvReqErr), "IBV_WC_REM_ACCESS_ERR": int64(StatusRemAccessErr),
	"IBV_WC_REM_OP_ERR": int64(StatusRemOpErr), "IBV_WC_RETRY_EXC_ERR": int64(StatusRetryExcErr),
	"IBV_WC_RNR_RETRY_EXC_ERR": int64(StatusRNRRetryExcErr), "IBV_WC_LOC_RDD_VIOL_ERR": int64(StatusLocRDDViolErr),
	"IBV_WC_REM_INV_RD_REQ_ERR": int64(StatusRemInvRDReqErr), "IBV_WC_REM_ABORT_ERR": int64(StatusRemAbortErr),
	"IBV_WC_INV_EECN_ERR": int64(StatusInvEECNErr), "IBV_WC_INV_EEC_STATE_ERR": int64(StatusInvEECStateErr),
	"IBV_WC_FATAL_ERR": int64(StatusFatalErr), "IBV_WC_RESP_TIMEOUT_ERR": int64(StatusRespTimeoutErr),
	"IBV_WC_GENERAL_ERR": int64(StatusGeneralErr), "IBV_WC_TM_ERR": int64(StatusTMErr),
	"IBV_WC_TM_RNDV_INCOMPLETE": int64(StatusTMRndvIncomplete),
	"IBV_WC_SEND":               int64(WCSend), "IBV_WC_RDMA_WRITE": int64(WCRDMAWrite), "IBV_WC_RDMA_READ": int64(WCRDMARead),
	"IBV_WC_COMP_SWAP": int64(WCCompSwap), "IBV_WC_FETCH_ADD": int64(WCFetchAdd), "IBV_WC_BIND_MW": int64(WCBindMW),
	"IBV_WC_LOCAL_INV": int64(WCLocalInv), "IBV_WC_RECV": int64(WCRecv), "IBV_WC_RECV_RDMA_WITH_IMM": int64(WCRecvRDMAWithImm),
	"IBV_WC_GRH": WCFlagGRH, "IBV_WC_WITH_IMM": WCFlagWithImm, "IBV_WC_WITH_INV": WCFlagWithInv,
	"IBV_EVENT_CQ_ERR": int64(AsyncCQErr), "IBV_EVENT_QP_FATAL": int64(AsyncQPFatal), "IBV_EVENT_QP_REQ_ERR": int64(AsyncQPReqErr),
	"IBV_EVENT_QP_ACCESS_ERR": int64(AsyncQPAccessErr), "IBV_EVENT_COMM_EST": int64(AsyncCommEst),
	"IBV_EVENT_SQ_DRAINED": int64(AsyncSQDrained), "IBV_EVENT_PATH_MIG": int64(AsyncPathMig),
	"IBV_EVENT_PATH_MIG_ERR": int64(AsyncPathMigErr), "IBV_EVENT_DEVICE_FATAL": int64(AsyncDeviceFatal),
	"IBV_EVENT_PORT_ACTIVE": int64(AsyncPortActive), "IBV_EVENT_PORT_ERR": int64(AsyncPortErr),
	"IBV_EVENT_LID_CHANGE": int64(AsyncLIDChange), "IBV_EVENT_PKEY_CHANGE": int64(AsyncPKeyChange),
	"IBV_EVENT_SM_CHANGE": int64(AsyncSMChange), "IBV_EVENT_SRQ_ERR": int64(AsyncSRQErr),
	"IBV_EVENT_SRQ_LIMIT_REACHED": int64(AsyncSRQLimitReached), "IBV_EVENT_QP_LAST_WQE_REACHED": int64(AsyncQPLastWQEReached),
	"IBV_EVENT_CLIENT_REREGISTER": int64(AsyncClientReregister), "IBV_EVENT_GID_CHANGE": int64(AsyncGIDChange),
	"IBV_EVENT_WQ_FATAL":          int64(AsyncWQFatal),
	"RDMA_CM_EVENT_ADDR_RESOLVED": int64(CMAddrResolved), "RDMA_CM_EVENT_ADDR_ERROR": int64(CMAddrError),
	"RDMA_CM_EVENT_ROUTE_RESOLVED": int64(CMRouteResolved), "RDMA_CM_EVENT_ROUTE_ERROR": int64(CMRouteError),
	"RDMA_CM_EVENT_CONNECT_REQUEST": int64(CMConnectRequest), "RDMA_CM_EVENT_CONNECT_RESPONSE": int64(CMConnectResponse),
	"RDMA_CM_EVENT_CONNECT_ERROR": int64(CMConnectError), "RDMA_CM_EVENT_UNREACHABLE": int64(CMUnreachable),
	"RDMA_CM_EVENT_REJECTED": int64(CMRejected), "RDMA_CM_EVENT_ESTABLISHED": int64(CMEstablished),
	"RDMA_CM_EVENT_DISCONNECTED": int64(CMDisconnected), "RDMA_CM_EVENT_DEVICE_REMOVAL": int64(CMDeviceRemoval),
	"RDMA_CM_EVENT_MULTICAST_JOIN": int64(CMMulticastJoin), "RDMA_CM_EVENT_MULTICAST_ERROR": int64(CMMulticastError),
	"RDMA_CM_EVENT_ADDR_CHANGE": int64(CMAddrChange), "RDMA_CM_EVENT_TIMEWAIT_EXIT": int64(CMTimewaitExit),
	"RDMA_OPTION_ID": OptionID, "RDMA_OPTION_ID_TOS": OptionIDTOS, "RDMA_OPTION_ID_REUSEADDR": OptionIDReuseAddr,
	"RDMA_OPTION_ID_AFONLY": OptionIDAFOnly, "RDMA_OPTION_ID_ACK_TIMEOUT": OptionIDAckTimeout,
}

// TestConstants compares the enumerations of Go with those of C, both ways.
func TestConstants(t *testing.T) {
	theirs := constants()
	for name, v := range theirs {
		if ours, ok := goConstants[name]; !ok || ours != v {
			t.Errorf("%s is %d, ours %d (%v)", name, v, ours, ok)
		}
	}
	for name := range goConstants {
		if _, ok := theirs[name]; !ok {
			t.Errorf("%s is not in the shim's table", name)
		}
	}
}

// TestLayouts: the work requests and completions that Go hands to C.
func TestLayouts(t *testing.T) {
	for field, at := range offsets() {
		if at[0] != at[1] {
			t.Errorf("%s is at %d in Go and at %d in C", field, at[0], at[1])
		}
	}
}
