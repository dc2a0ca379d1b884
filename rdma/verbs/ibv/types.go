package ibv

// Enumerations have the values of <infiniband/verbs.h> and <rdma/rdma_cma.h>:
// TestConstants compares them with abi_constants.h, and TestABI compares that with
// the headers.

// PortState is enum ibv_port_state.
type PortState uint8

const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

// MTU is enum ibv_mtu.
type MTU uint8

const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the MTU in bytes; 0 if it is none.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// LinkLayer is IBV_LINK_LAYER_*.
type LinkLayer uint8

const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

// Transport is enum ibv_transport_type.
type Transport int8

const (
	TransportUnknown Transport = -1
	TransportIB      Transport = 0 // InfiniBand and RoCE
	TransportIWARP   Transport = 1
)

// A GID is a global identifier, 16 bytes in network order. That of a RoCE port
// is an IPv6 or IPv4-mapped IPv6 address.
type GID [16]byte

// GIDType is enum ibv_gid_type.
type GIDType uint32

const (
	GIDIB GIDType = iota
	GIDRoCEv1
	GIDRoCEv2
)

// A GIDEntry is one line of a port's GID table.
type GIDEntry struct {
	GID    GID
	Port   uint8
	Index  int
	Type   GIDType
	NetDev string // network interface; empty on InfiniBand
}

// DeviceInfo is a device that Open would open (struct ibv_device).
type DeviceInfo struct {
	Name      string    // "mlx5_0", "rxe0"
	Kernel    string    // name of its uverbs device: "uverbs0"
	GUID      uint64    // node GUID, host order
	Transport Transport //
}

// DeviceAttr is struct ibv_device_attr; its fields have the names of the
// manual page.
type DeviceAttr struct {
	FWVer                       string
	NodeGUID, SysImageGUID      uint64
	MaxMRSize, PageSizeCap      uint64
	VendorID, VendorPartID      uint32
	HWVer                       uint32
	MaxQP, MaxQPWR              int
	DeviceCapFlags              uint32
	MaxSGE, MaxSGERd            int
	MaxCQ, MaxCQE, MaxMR, MaxPD int
	MaxQPRdAtom, MaxEERdAtom    int
	MaxResRdAtom                int
	MaxQPInitRdAtom             int
	AtomicCap                   int // 0 none, 1 within the HCA, 2 global
	MaxMW, MaxAH                int
	MaxSRQ, MaxSRQWR, MaxSRQSGE int
	MaxPKeys                    int
	LocalCAAckDelay             uint8
	PhysPortCnt                 uint8
}

// PortAttr is struct ibv_port_attr.
type PortAttr struct {
	State                     PortState
	MaxMTU, ActiveMTU         MTU
	GIDTblLen, PKeyTblLen     int
	PortCapFlags              uint32
	MaxMsgSz                  uint32
	BadPKeyCntr, QKeyViolCntr uint32
	LID, SMLID                uint16
	LMC, SMSL                 uint8
	ActiveWidth, ActiveSpeed  uint8
	PhysState                 uint8
	LinkLayer                 LinkLayer
	// GRHRequired: each packet needs a GRH, on InfiniBand too
	// (IBV_QPF_GRH_REQUIRED). Ports of virtual functions and of routed fabrics do.
	// It is false where the provider is too old to say.
	GRHRequired   bool
	PortCapFlags2 uint16 // 0 where the provider is too old to say
}

// Access is enum ibv_access_flags.
type Access uint32

const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	AccessMWBind       Access = 1 << 4
)

// QPState is enum ibv_qp_state.
type QPState uint8

const (
	QPSReset QPState = iota
	QPSInit
	QPSRTR
	QPSRTS
	QPSSQD
	QPSSQE
	QPSErr
)

// QPAttrMask is enum ibv_qp_attr_mask: which fields of a QPAttr count.
type QPAttrMask uint32

const (
	QPMaskState           QPAttrMask = 1 << 0
	QPMaskCurState        QPAttrMask = 1 << 1
	QPMaskEnSQDNotify     QPAttrMask = 1 << 2
	QPMaskAccessFlags     QPAttrMask = 1 << 3
	QPMaskPKeyIndex       QPAttrMask = 1 << 4
	QPMaskPort            QPAttrMask = 1 << 5
	QPMaskQKey            QPAttrMask = 1 << 6
	QPMaskAV              QPAttrMask = 1 << 7
	QPMaskPathMTU         QPAttrMask = 1 << 8
	QPMaskTimeout         QPAttrMask = 1 << 9
	QPMaskRetryCnt        QPAttrMask = 1 << 10
	QPMaskRNRRetry        QPAttrMask = 1 << 11
	QPMaskRQPSN           QPAttrMask = 1 << 12
	QPMaskMaxQPRdAtomic   QPAttrMask = 1 << 13
	QPMaskAltPath         QPAttrMask = 1 << 14
	QPMaskMinRNRTimer     QPAttrMask = 1 << 15
	QPMaskSQPSN           QPAttrMask = 1 << 16
	QPMaskMaxDestRdAtomic QPAttrMask = 1 << 17
	QPMaskPathMigState    QPAttrMask = 1 << 18
	QPMaskCap             QPAttrMask = 1 << 19
	QPMaskDestQPN         QPAttrMask = 1 << 20
)

// AHAttr is struct ibv_ah_attr with its global route.
type AHAttr struct {
	IsGlobal     bool
	DGID         GID
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	PortNum      uint8
}

// QPAttr is struct ibv_qp_attr, for ModifyQP and QueryQP.
type QPAttr struct {
	State, CurState QPState
	PathMTU         MTU
	QKey            uint32
	RQPSN, SQPSN    uint32
	DestQPN         uint32
	AccessFlags     Access
	Cap             QPCap
	AH              AHAttr
	PKeyIndex       uint16
	EnSQDNotify     bool
	SQDraining      bool
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	Port            uint8
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
}

// QPCap is struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline uint32
}

// QPInit is struct ibv_qp_init_attr for an RC QP.
type QPInit struct {
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // nil: own receive queue
	Cap            QPCap
	SigAll         bool
}

// Opcode is enum ibv_wr_opcode.
type Opcode uint32

const (
	WRRDMAWrite      Opcode = 0
	WRRDMAWriteImm   Opcode = 1
	WRSend           Opcode = 2
	WRSendImm        Opcode = 3
	WRRDMARead       Opcode = 4
	WRAtomicCmpSwp   Opcode = 5
	WRAtomicFetchAdd Opcode = 6
	WRLocalInv       Opcode = 7
	WRSendInv        Opcode = 9
)

// SendFlags is enum ibv_send_flags.
type SendFlags uint32

const (
	SendFence     SendFlags = 1 << 0
	SendSignaled  SendFlags = 1 << 1
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3
)

// An SGE is struct ibv_sge.
type SGE struct {
	Addr uint64
	Len  uint32
	LKey uint32
}

// MaxSGE is the scatter/gather entries that one work request of this binding
// carries at most.
const MaxSGE = 8

// A SendWR is struct ibv_send_wr, flat: the shim chains a slice of them.
// Its layout is that of struct rk_send_wr in shim.h.
type SendWR struct {
	ID         uint64
	RemoteAddr uint64
	CompareAdd uint64
	Swap       uint64
	Op         Opcode
	Flags      SendFlags
	RKey       uint32
	ImmInv     uint32 // immediate data (network order) or the rkey to invalidate
	NumSGE     uint32
	_          uint32
	SGL        [MaxSGE]SGE
}

// A RecvWR is struct ibv_recv_wr, flat.
type RecvWR struct {
	ID     uint64
	NumSGE uint32
	_      uint32
	SGL    [MaxSGE]SGE
}
