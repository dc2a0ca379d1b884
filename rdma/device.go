package rdma

import (
	"context"
	"net"
)

// A Fabric is one way to do RDMA on this machine: the user-space iWARP RNIC
// (package iwarp) today, libibverbs and others beside it. A program's main
// picks fabrics by name and hands them down as values; there is no registry.
//
// All methods are safe for concurrent use.
type Fabric interface {
	// Name is the fabric's short name as it stands in configuration: "iwarp".
	Name() string
	// Devices lists what Open would accept. An empty list is not an error.
	Devices(ctx context.Context) ([]DeviceInfo, error)
	// Open opens a device. The empty name lets the fabric choose and put the
	// reason into DeviceAttr.Reason; a name that does not exist is ErrNoDevice
	// and the error lists the names that do: never another device.
	Open(ctx context.Context, name string) (Device, error)
}

// DeviceInfo describes a device that could be opened.
type DeviceInfo struct {
	Name      string // as Open takes it
	Transport string // "iWARP", "InfiniBand", "RoCE v2"
	Detail    string // one line for people
}

// A Device is an opened RNIC or HCA: the parent of everything else.
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
	// Listen starts to accept connections on a host:port address. Port 0
	// picks a free one; Listener.Addr tells which.
	Listen(ctx context.Context, addr string) (Listener, error)
	// Close closes the device. It fails with ErrBusy while PDs, CQs or
	// listeners of it are open. Closing twice is harmless.
	Close() error
}

// A PortWatcher is a Device whose connections are made by a part of the kernel that
// may fail apart from the rest, as when a port goes down and comes back.
type PortWatcher interface {
	// PortChanges has a value after a port has come back or has changed: one value
	// for any number of changes since the last was taken. It is always the same
	// channel; nil if the device cannot connect to itself, so that nothing could be
	// tried. It is never closed.
	PortChanges() <-chan struct{}
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
	// CapRNR: a SEND that meets no posted receive waits and is retried by the
	// transport (InfiniBand, RoCE). Without it (iWARP) such a SEND ends the
	// connection at once.
	CapRNR
	// CapSendDelivers: the completion of a SEND proves that the peer's NIC
	// has placed it. Not so on iWARP, where it proves only that the local
	// memory may be reused.
	CapSendDelivers
	// CapReadSinkWrite: the sink of an RDMA READ must be registered with
	// AccessRemoteWrite (iWARP NICs, RFC 5040 section 5.2; the software
	// fabric does not need it).
	CapReadSinkWrite
	// CapDiesWithProcess: no remote access is answered once the process that
	// registered the memory is gone, because the process itself answers.
	// Hardware and kernel providers do not promise that.
	CapDiesWithProcess
	// CapAccessIgnored: the device lets every connected peer READ every region
	// of the QP's protection domain, whatever SetAccess and, for siw, the region
	// say. No adapter should; the kernel's siw does, and drivers of some adapters
	// (bnxt_re before Linux 6.13). What is left is that a peer must know rkey and
	// address. verbs knows it of siw, and of others by Options.ProbeRights.
	CapAccessIgnored
	// CapNoRevoke: the device keeps a right that SetAccess has taken away from a
	// connected QP; closing the QP is what ends it. Some drivers of Intel's
	// adapters do that.
	CapNoRevoke
	// CapMapped: the peer maps the memory, and READs are copies that its own
	// processor makes. Well-behaved peers keep to SetAccess and to regions that
	// are closed; but a mapping cannot be taken back from one that does not, and
	// the memory is there until the last of them has let go, also when the process
	// that registered it is gone.
	CapMapped
)

// Has reports whether all of want are present.
func (c Caps) Has(want Caps) bool { return c&want == want }

// DeviceAttr holds the limits of a device, in the words of
// ibv_query_device(3).
type DeviceAttr struct {
	Fabric          string // Fabric.Name
	Reason          string // why this device was chosen, for the log
	Rights          string // how it is known whether SetAccess holds; empty if that was not tried
	Caps            Caps
	MaxQP           int
	MaxQPWR         int    // work requests per send or receive queue
	MaxSGE          int    // scatter/gather entries per work request
	MaxCQ           int    //
	MaxCQE          int    // completions per CQ
	MaxMR           int    //
	MaxMRSize       uint64 // bytes
	MaxPD           int    //
	MaxSRQ          int    //
	MaxSRQWR        int    //
	MaxQPRdAtom     int    // inbound READs in flight per QP (IRD)
	MaxQPInitRdAtom int    // outbound READs in flight per QP (ORD)
	MaxInline       int    // bytes
	MaxMsgSize      uint32 // bytes of one work request
	// Private data that the connection manager carries, in bytes.
	MaxConnectPrivate int // with Connect; never below 56
	MaxAcceptPrivate  int // with Accept and Reject; never below 148
}

// PrivateDataMax is the private data in bytes that Connect carries on every
// fabric (rdma_connect(3), RDMA_PS_TCP).
const PrivateDataMax = 56

// A PD is a protection domain: MRs and QPs of different PDs never meet.
// All methods are safe for concurrent use.
type PD interface {
	Device() Device
	// RegMR registers buf. The memory must stay mapped until MR.Close has
	// returned and should lie outside the Go heap (internal/memory); length 0
	// is ErrInvalid. AccessRemoteWrite and AccessRemoteAtomic need
	// AccessLocalWrite, as in ibv_reg_mr(3).
	RegMR(buf []byte, access Access) (MR, error)
	// CreateQP creates an RC QP in state INIT.
	CreateQP(cfg QPConfig) (QP, error)
	// CreateSRQ creates a shared receive queue (CapSRQ).
	CreateSRQ(maxWR int) (SRQ, error)
	// Close fails with ErrBusy while MRs, QPs or SRQs of it are open.
	Close() error
}

// Access is a set of rights on a memory region or a queue pair
// (ibv_reg_mr(3), ibv_modify_qp(3)). Local read is always there.
type Access uint32

const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	// AccessRemoteMask is every right that a peer may hold.
	AccessRemoteMask = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
)

// An MR is a registered memory region.
//
// Close deregisters: when it returns, no remote or local access through its
// keys succeeds any more and none is under way, and the memory may be unmapped.
// An access that arrives later is answered as a protection fault.
type MR interface {
	PD() PD
	// Bytes is the registered memory itself.
	Bytes() []byte
	// Addr is the address that a peer uses for the first byte.
	Addr() uint64
	Len() uint64
	LKey() uint32
	// RKey is the key that a peer needs; 0 if no remote right was given.
	RKey() uint32
	Access() Access
	Close() error
}

// A Listener accepts connection requests. All methods are safe for
// concurrent use.
type Listener interface {
	// Accept waits for a request. It fails with ctx.Err() or ErrClosed.
	Accept(ctx context.Context) (ConnRequest, error)
	Addr() net.Addr
	// Close stops listening and rejects requests nobody took.
	Close() error
}

// A ConnRequest is a peer that asks for a connection. Exactly one of Accept
// and Reject must be called; a request left alone is dropped by the fabric
// after its set-up deadline (a bounded number of seconds).
type ConnRequest interface {
	// PrivateData is what the peer sent: hostile bytes until checked. On
	// InfiniBand and RoCE zeros follow, up to the size of a fixed field.
	PrivateData() []byte
	RemoteAddr() net.Addr
	// Accept connects qp, which must be in state INIT and of the listener's
	// device, and returns once it is in RTS. Receives that the peer may use
	// at once must have been posted before.
	Accept(ctx context.Context, qp QP, p ConnParams) (ConnInfo, error)
	// Reject refuses, with private data for the peer.
	Reject(private []byte) error
}

// ConnParams are what one end asks of a connection.
type ConnParams struct {
	PrivateData []byte
	// IRD is how many READs from the peer this end serves at a time, ORD how
	// many it wants to have in flight itself. Zero means the device's limit.
	// rdma_connect(3) calls them responder_resources and initiator_depth.
	IRD, ORD int
}

// ConnInfo is what came out of the negotiation.
type ConnInfo struct {
	PrivateData []byte // the peer's, a copy; on InfiniBand and RoCE zeros follow
	IRD, ORD    int    // in force: READs in flight never exceed ORD
	LocalAddr   net.Addr
	RemoteAddr  net.Addr
	Detail      string // one line for people: "MPA rev 2, CRC32C, no markers"
	Path        Path   // what the connection runs over, as far as the fabric knows
}
