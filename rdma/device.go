package rdma

import (
	"context"
	"net"
)

// A Fabric is one way to do RDMA on this machine: the devices of libibverbs
// (package verbs), an RNIC in software (package iwarp), and others. A program makes
// the fabrics that it uses and passes them on as values; there is no registry.
//
// All methods are safe for concurrent use.
type Fabric interface {
	// Name is the fabric's short name as it stands in configuration: "iwarp".
	Name() string
	// Devices lists the devices that Open would accept. An empty list is not an
	// error.
	Devices(ctx context.Context) ([]DeviceInfo, error)
	// Open opens the device with this name. With the empty name the fabric chooses a
	// device, and DeviceAttr.Reason says why it chose this one. If there is no
	// device of that name, Open fails with ErrNoDevice, and the text lists the names
	// that exist: Open never opens another device. The caller closes the device.
	Open(ctx context.Context, name string) (Device, error)
}

// DeviceInfo describes a device that could be opened.
type DeviceInfo struct {
	Name      string // as Open takes it
	Transport string // "iWARP", "InfiniBand", "RoCE v2"
	Detail    string // one line for people
}

// A Device is an opened RDMA network card, an RNIC (iWARP, RoCE) or HCA
// (InfiniBand), or its like in software: the parent of everything else.
// All methods are safe for concurrent use.
type Device interface {
	Name() string
	// Attr returns the device's limits and capabilities; they do not change.
	Attr() DeviceAttr
	// AllocPD allocates a protection domain.
	AllocPD() (PD, error)
	// CreateCQ creates a completion queue for at least depth completions,
	// 1 ≤ depth ≤ Attr().MaxCQE, else ErrInvalid.
	CreateCQ(depth int) (CQ, error)
	// Listen starts to accept connections at a host:port address. With port 0 it
	// takes a free port, which Listener.Addr tells. ctx bounds the start alone.
	Listen(ctx context.Context, addr string) (Listener, error)
	// Close closes the device. It fails with ErrBusy while PDs, CQs or listeners
	// of the device are open. Closing twice is harmless.
	Close() error
}

// Caps is a set of optional abilities of a device.
type Caps uint32

const (
	// CapSRQ: PD.CreateSRQ works.
	CapSRQ Caps = 1 << iota
	// CapInline: SendInline is accepted up to QPConfig.Cap.MaxInline.
	CapInline
	// CapWrite: OpRDMAWrite works.
	CapWrite
	// CapAtomics: OpAtomicFetchAdd and OpAtomicCmpSwap work.
	CapAtomics
	// CapInvalidate: OpSendInv and OpLocalInv work.
	CapInvalidate
	// CapWindows: memory windows can be bound.
	CapWindows
	// CapRNR: if the peer has no receive posted for a SEND, the transport retries
	// the SEND for a while (InfiniBand, RoCE: receiver not ready). Without CapRNR
	// (iWARP) such a SEND ends the connection at once.
	CapRNR
	// CapSendDelivers: the completion of a SEND proves that the peer's NIC has
	// placed the message into the peer's memory. On iWARP it proves only that the
	// local memory may be reused.
	CapSendDelivers
	// CapReadSinkWrite: the sink of a READ must be registered with
	// AccessRemoteWrite. NICs of iWARP demand that (RFC 5040 section 5.2);
	// package iwarp does not.
	CapReadSinkWrite
	// CapDiesWithProcess: no remote access is answered once the process that
	// registered the memory is gone, because the process itself answers.
	// Hardware and drivers in the kernel do not promise that.
	CapDiesWithProcess
	// CapAccessIgnored: the device lets every connected peer READ every region of
	// the QP's protection domain, whatever rights SetAccess gave. siw, the kernel's
	// soft-iWARP, does so, and ignores the region's rights too; so do drivers of
	// some adapters (bnxt_re before Linux 6.13). The only protection left is that
	// the peer must know rkey and address. Package verbs knows this of siw, and
	// finds it out for other devices if Options.ProbeRights is set.
	CapAccessIgnored
	// CapNoRevoke: a connected QP keeps a right that SetAccess takes away. To end
	// the right the program must close the QP. Some drivers of Intel's adapters
	// behave so.
	CapNoRevoke
	// CapMapped: the peer maps the memory into its own process, and its READs are
	// copies that its own processor makes. A peer that keeps the rules reads no
	// region that is closed and nothing that SetAccess has not granted. A mapping
	// cannot be taken back from a peer that breaks them; and the memory exists until
	// the last peer has unmapped it, even if the process that registered it is gone.
	CapMapped
	// CapSpinRead: QPs are SpinReaders.
	CapSpinRead
)

// Has reports whether all abilities in want are present.
func (c Caps) Has(want Caps) bool { return c&want == want }

// DeviceAttr holds the limits of a device, in the words of
// ibv_query_device(3).
type DeviceAttr struct {
	Fabric          string // Fabric.Name
	Reason          string // why this device was chosen, for the log
	Rights          string // how it was found out whether the device obeys SetAccess; empty: not tried
	Caps            Caps
	MaxQP           int    // queue pairs
	MaxQPWR         int    // work requests per send or receive queue
	MaxSGE          int    // scatter/gather entries per work request
	MaxCQ           int    // CQs
	MaxCQE          int    // completions per CQ
	MaxMR           int    // memory regions
	MaxMRSize       uint64 // bytes of one memory region
	MaxPD           int    // protection domains
	MaxSRQ          int    // shared receive queues
	MaxSRQWR        int    // work requests per shared receive queue
	MaxQPRdAtom     int    // READs of the peer in flight per QP (IRD)
	MaxQPInitRdAtom int    // own READs in flight per QP (ORD)
	MaxInline       int    // bytes of inline data per work request
	MaxMsgSize      uint32 // bytes of one work request
	// How much private data connection requests and their answers carry, in bytes.
	MaxConnectPrivate int // with Connect; never below 56
	MaxAcceptPrivate  int // with Accept and Reject; never below 148
}

// PrivateDataMax is how many bytes of private data Connect carries on every
// fabric (rdma_connect(3), RDMA_PS_TCP).
const PrivateDataMax = 56

// A PD is a protection domain: a QP can use only MRs of its own PD, for its own
// work and for that of its peer. All methods are safe for concurrent use.
type PD interface {
	Device() Device
	// RegMR registers buf, which must stay mapped until MR.Close has returned.
	// The memory should lie outside the Go heap: package mem allocates it. An empty
	// buf is ErrInvalid. AccessRemoteWrite and AccessRemoteAtomic need
	// AccessLocalWrite beside them, as in ibv_reg_mr(3).
	RegMR(buf []byte, access Access) (MR, error)
	// CreateQP creates an RC QP in state INIT. It fails with ErrInvalid if a field
	// of cfg is out of range, which the text names.
	CreateQP(cfg QPConfig) (QP, error)
	// CreateSRQ creates a shared receive queue for at most maxWR receives
	// (CapSRQ).
	CreateSRQ(maxWR int) (SRQ, error)
	// Close fails with ErrBusy while MRs, QPs or SRQs of the PD are open.
	Close() error
}

// Access is a set of rights on a memory region or a queue pair
// (ibv_reg_mr(3), ibv_modify_qp(3)). The right to read locally needs no bit.
type Access uint32

const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	// AccessRemoteMask is every right that a peer may hold.
	AccessRemoteMask = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
)

// An MR is a registered memory region. All methods are safe for concurrent use.
// Accesses to the memory are not synchronised with those of the program: a peer
// may READ it between any two stores.
type MR interface {
	PD() PD
	// Bytes is the registered memory itself.
	Bytes() []byte
	// Addr is the address by which a peer names the first byte.
	Addr() uint64
	// Len is the length in bytes.
	Len() uint64
	// LKey is the key for work of this end; an SGE names the MR instead.
	LKey() uint32
	// RKey is the key that a peer needs; 0 if no remote right was given.
	RKey() uint32
	Access() Access
	// Close deregisters the memory, and waits for accesses that are under way.
	// When it returns, no local or remote access by the region's keys succeeds any
	// more, and the memory may be unmapped. A later access is answered as a
	// protection fault. Closing twice is harmless.
	Close() error
}

// A Listener accepts connection requests. All methods are safe for
// concurrent use.
type Listener interface {
	// Accept waits for a connection request. It fails with ctx.Err() or ErrClosed.
	Accept(ctx context.Context) (ConnRequest, error)
	// Addr is the address at which the listener listens.
	Addr() net.Addr
	// Close stops listening, and rejects the requests that no Accept has taken.
	Close() error
}

// A ConnRequest is a peer that asks for a connection. The program must call
// exactly one of Accept and Reject. The fabric drops a request that has no answer
// when its set-up deadline has passed, after a bounded number of seconds.
type ConnRequest interface {
	// PrivateData is what the peer gave to Connect, unchecked: any host may have
	// sent it. On InfiniBand and RoCE zeros follow, up to the size of a fixed field.
	PrivateData() []byte
	RemoteAddr() net.Addr
	// Accept connects qp, which must be in state INIT and of the listener's
	// device, and returns when qp is in RTS. A receive that the peer may need at
	// once must be posted before. A peer that is quick may have ended the connection
	// before Accept returns: that is no failure, and qp is in state ERR then. After a
	// failure qp can only be closed.
	Accept(ctx context.Context, qp QP, p ConnParams) (ConnInfo, error)
	// Reject refuses the connection; the peer's Connect returns the private data.
	Reject(private []byte) error
}

// ConnParams are what one end asks of a connection.
type ConnParams struct {
	PrivateData []byte // for the peer; the caller's again on return
	// IRD is how many READs of the peer this end serves at a time, ORD how many of
	// its own it may have in flight. Zero means the device's limit.
	// rdma_connect(3) calls them responder_resources and initiator_depth.
	IRD, ORD int
}

// ConnInfo is what both ends have agreed upon.
type ConnInfo struct {
	PrivateData []byte // the peer's, a copy; on InfiniBand and RoCE zeros follow
	IRD, ORD    int    // in force; READs beyond ORD wait in the send queue
	LocalAddr   net.Addr
	RemoteAddr  net.Addr
	Detail      string // one line for people: "MPA rev 2, CRC32C, no markers"
	Path        Path   // what the connection runs over, as far as the fabric knows
}
