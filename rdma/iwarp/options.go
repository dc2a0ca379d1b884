package iwarp

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// Options of a Fabric. The zero value suits most programs; everything else
// is for peers with other habits and for tests.
type Options struct {
	// NoCRC says that this end does not need CRC32C. The CRC is left out only if
	// both ends say so (RFC 5044 section 7.1).
	NoCRC bool
	// NoCRCWithin says the same of connections that stay within the machine, where the
	// bytes go from memory to memory and TCP itself sums nothing up. Each end goes by the
	// addresses that its kernel has for the connection, and the CRC is left out only if
	// both say so: what a NAT leads to another host keeps its CRC, because the two
	// ends see different addresses. A forwarder in user space at both hosts (ssh -L) looks
	// like two connections within; behind one leave this off.
	NoCRCWithin bool
	// Revision of MPA with which Connect begins: 2 (0 means 2) with IRD/ORD
	// negotiation and peer-to-peer set-up, or 1. There is no silent fall-back;
	// a listener accepts both.
	Revision int
	// RTR lists the frames offered for peer-to-peer set-up with revision 2;
	// 0 means WRITE and READ.
	RTR RTR
	// NoPeerToPeer leaves peer-to-peer mode off with revision 2: then, as with
	// revision 1, the accepting end sends nothing before the connecting end
	// has sent its first message.
	NoPeerToPeer bool
	// MaxPayload bounds the payload bytes of one FPDU. 0 fits FPDUs into TCP
	// segments, as RFC 5044 recommends, or uses 32 KiB when the peer is this host.
	MaxPayload int
	// ReadDepth is the device's limit for IRD and ORD; 0 means 128.
	ReadDepth int
	// MaxQP bounds the QPs of a device; 0 means 65536.
	MaxQP int
	// MaxPending bounds the connections that are being set up towards all
	// listeners of the fabric together; 0 means 1024. Beyond it the connection
	// that has been silent longest is dropped.
	MaxPending int
	// SetupTimeout bounds each handshake; 0 means 5 s.
	SetupTimeout time.Duration
	// PeerTimeout is how long TCP may go unacknowledged, or the peer not read,
	// before the connection ends; 0 means 20 s.
	PeerTimeout time.Duration
	// Wait says whether the goroutine that answers READs looks for the next one
	// before it sleeps; CQ.Spin says the same for waiters. The zero value is
	// adaptive. It does nothing over TLS.
	Wait wait.Mode
	// Spin is for how long at most the goroutine looks. 0 leaves that to the
	// fabric; below 0 it does not look.
	Spin time.Duration
	// TLS runs every connection inside TLS 1.3, with certificates of both ends:
	// Certificates is what this end shows, RootCAs and ClientCAs are the
	// authorities that it trusts when it dials and when it listens. The peer's
	// certificate must have the host of the dialled address, or ServerName if
	// that is set. If TLS is nil, connections are plain TCP. It implies NoCRC.
	// See tls.go.
	TLS *tls.Config
}

// RTR is a set of frames with which an initiator may say "ready to receive"
// in peer-to-peer mode (RFC 6581 section 4.3).
type RTR = proto.RTR

const (
	// RTRSend is an FPDU that carries nothing at all (flag B).
	RTRSend = proto.RTRSend
	// RTRWrite is a zero-length RDMA WRITE (flag C).
	RTRWrite = proto.RTRWrite
	// RTRRead is a zero-length RDMA READ (flag D).
	RTRRead = proto.RTRRead
)

// Defaults and bounds of Options.
const (
	defaultReadDepth    = 128
	defaultMaxQP        = 1 << 16
	defaultMaxPending   = 1024
	defaultSetupTimeout = 5 * time.Second
	defaultPeerTimeout  = 20 * time.Second

	loopbackPayload = 60 << 10
	minPayload      = 64
	// maxPayload keeps the longest segment within 16 bits of length, and is
	// a multiple of 8 so that READ responses split between words.
	maxPayload = (proto.MaxULPDU - proto.MaxHeaderLen) &^ 7

	deviceName = "iwarp0"
)

func (o Options) withDefaults() Options {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Revision, 2)
	set(&o.ReadDepth, defaultReadDepth)
	set(&o.MaxQP, defaultMaxQP)
	set(&o.MaxPending, defaultMaxPending)
	if o.RTR == 0 {
		o.RTR = RTRWrite | RTRRead
	}
	if o.SetupTimeout == 0 {
		o.SetupTimeout = defaultSetupTimeout
	}
	if o.PeerTimeout == 0 {
		o.PeerTimeout = defaultPeerTimeout
	}
	o.NoCRC = o.NoCRC || o.TLS != nil
	switch {
	case o.Spin < 0:
		o.Wait = wait.Event
	case o.Spin == 0 && o.Wait == wait.Poll:
		o.Spin = wait.MaxSpin
	case o.Spin == 0:
		o.Spin = wait.DefaultSpin
	}
	return o
}

// validate names the first option that is out of range.
func (o Options) validate() error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{o.Revision != 1 && o.Revision != 2, fmt.Sprintf("MPA revision %d is not 1 or 2", o.Revision)},
		{o.RTR&^proto.RTRAll != 0, fmt.Sprintf("RTR %v has unknown bits", o.RTR)},
		{o.MaxPayload != 0 && (o.MaxPayload < minPayload || o.MaxPayload > maxPayload),
			fmt.Sprintf("MaxPayload %d is not within %d and %d", o.MaxPayload, minPayload, maxPayload)},
		{o.ReadDepth < 1 || o.ReadDepth >= proto.NoNegotiation, fmt.Sprintf("ReadDepth %d is not within 1 and %d", o.ReadDepth, proto.NoNegotiation-1)},
		{o.MaxQP < 1, fmt.Sprintf("MaxQP %d is not positive", o.MaxQP)},
		{o.MaxPending < 1, fmt.Sprintf("MaxPending %d is not positive", o.MaxPending)},
		{o.SetupTimeout < 0, fmt.Sprintf("SetupTimeout %v is negative", o.SetupTimeout)},
		{o.PeerTimeout < 0, fmt.Sprintf("PeerTimeout %v is negative", o.PeerTimeout)},
		{o.Spin > wait.MaxSpin, fmt.Sprintf("Spin %v is above %v", o.Spin, wait.MaxSpin)},
		{checkTLS(o.TLS) != "", checkTLS(o.TLS)},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", rdma.ErrInvalid, c.text)
		}
	}
	return nil
}

// crc says whether this end wants CRC32C on a connection; within: which stays within
// the machine.
func (o *Options) crc(within bool) bool { return !o.NoCRC && !(o.NoCRCWithin && within) }

// A Fabric is the iWARP of this process. It implements rdma.Fabric.
type Fabric struct {
	opts    Options
	optErr  error // reported by Open, because New returns no error
	pending pendingSet
	qpns    soft.Numbers
}

var _ rdma.Fabric = (*Fabric)(nil)

// New makes a fabric. Bad options are reported by Open.
func New(opts Options) *Fabric {
	opts = opts.withDefaults()
	f := &Fabric{opts: opts, optErr: opts.validate()}
	f.pending.limit = opts.MaxPending
	return f
}

// Name is "iwarp".
func (f *Fabric) Name() string { return "iwarp" }

// Devices lists the one device that is always there.
func (f *Fabric) Devices(ctx context.Context) ([]rdma.DeviceInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return []rdma.DeviceInfo{{
		Name: deviceName, Transport: "iWARP", Detail: "user-space iWARP RNIC over the host's TCP",
	}}, nil
}

// Open opens "iwarp0", which is also what the empty name means.
func (f *Fabric) Open(ctx context.Context, name string) (rdma.Device, error) {
	fail := func(err error) (rdma.Device, error) {
		return nil, &rdma.OpError{Op: "open", Fabric: f.Name(), Addr: name, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if name != "" && name != deviceName {
		return fail(fmt.Errorf("%w; there is: %s", rdma.ErrNoDevice, deviceName))
	}
	if f.optErr != nil {
		return fail(f.optErr)
	}
	reason := "named"
	if name == "" {
		reason = "the only device"
	}
	return newDevice(f, reason), nil
}
