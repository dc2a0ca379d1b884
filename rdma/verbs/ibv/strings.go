package ibv

import (
	"fmt"
	"net/netip"
	"strings"
)

// These are the names of the enumerations, as the manual pages have them
// without IBV_ and RDMA_CM_.

// name is names[i], or what and the number.
func name[T ~int8 | ~uint8 | ~uint32](what string, names []string, i T) string {
	if i >= 0 && int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}

func (s PortState) String() string {
	return name("port state", []string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}, s)
}

func (m MTU) String() string {
	if n := m.Bytes(); n != 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("MTU %d", uint8(m))
}

func (l LinkLayer) String() string {
	return name("link layer", []string{"unspecified", "InfiniBand", "Ethernet"}, l)
}

func (t Transport) String() string {
	return name("transport", []string{"IB", "iWARP"}, t)
}

// String writes the GID in the form of an IPv6 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

func (t GIDType) String() string {
	return name("GID type", []string{"IB", "RoCE v1", "RoCE v2"}, t)
}

func (s QPState) String() string {
	return name("QP state", []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}, s)
}

// set writes the names of the bits of v, and those that have none as a number.
func set(v uint32, names []string) string {
	var list []string
	for i, s := range names {
		if s != "" && v&(1<<i) != 0 {
			list = append(list, s)
			v &^= 1 << i
		}
	}
	if v != 0 || len(list) == 0 {
		list = append(list, fmt.Sprintf("%#x", v))
	}
	return strings.Join(list, "|")
}

func (a Access) String() string {
	return set(uint32(a), []string{"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND"})
}

func (m QPAttrMask) String() string {
	return set(uint32(m), []string{"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT",
		"QKEY", "AV", "PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH",
		"MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN"})
}

func (f SendFlags) String() string {
	return set(uint32(f), []string{"FENCE", "SIGNALED", "SOLICITED", "INLINE"})
}

func (o Opcode) String() string {
	return name("opcode", []string{"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ",
		"ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV"}, o)
}

func (s WCStatus) String() string {
	return name("WC status", []string{"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR",
		"WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
		"REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",
		"INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR",
		"TM_RNDV_INCOMPLETE"}, s)
}

func (o WCOpcode) String() string {
	switch o {
	case WCRecv:
		return "RECV"
	case WCRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return name("WC opcode", []string{"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW", "LOCAL_INV"}, o)
}

func (t AsyncType) String() string {
	return name("event", []string{"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED",
		"PATH_MIG", "PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE",
		"SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER", "GID_CHANGE", "WQ_FATAL"}, t)
}

// ofQP says if events of this type name a QP.
func (t AsyncType) ofQP() bool {
	switch t {
	case AsyncQPFatal, AsyncQPReqErr, AsyncQPAccessErr, AsyncCommEst, AsyncSQDrained,
		AsyncPathMig, AsyncPathMigErr, AsyncQPLastWQEReached:
		return true
	}
	return false
}

func (t CMEventType) String() string {
	return name("CM event", []string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST",
		"CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
		"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT"}, t)
}
