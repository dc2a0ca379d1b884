package soft

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// Caps checks the sizes of a QP's queues against the device's limits, and fills in
// the defaults.
func Caps(c *rdma.QPCap, a *rdma.DeviceAttr) error {
	for _, l := range []struct {
		name     string
		v        *int
		def, max int
	}{
		{"MaxSendWR", &c.MaxSendWR, 128, a.MaxQPWR},
		{"MaxRecvWR", &c.MaxRecvWR, 128, a.MaxQPWR},
		{"MaxSGE", &c.MaxSGE, 4, a.MaxSGE},
		{"MaxInline", &c.MaxInline, 0, a.MaxInline},
	} {
		if *l.v == 0 {
			*l.v = l.def
		}
		if *l.v < 0 || *l.v > l.max {
			return fmt.Errorf("%w: %s %d is not within 0 and %d", rdma.ErrInvalid, l.name, *l.v, l.max)
		}
	}
	return nil
}

// CheckAccess says what is wrong with giving a peer these rights.
func CheckAccess(a rdma.Access) error {
	const known = rdma.AccessLocalWrite | rdma.AccessRemoteMask
	if a&^known != 0 {
		return fmt.Errorf("%w: unknown access rights %#x", rdma.ErrInvalid, uint32(a&^known))
	}
	if a&rdma.AccessRemoteAtomic != 0 {
		return fmt.Errorf("%w: remote atomics", rdma.ErrNotSupported)
	}
	return nil
}

// Depths checks what a program asks for in ConnParams, and fills in the defaults.
// maxPrivate bounds the private data, in bytes.
func (d *Device) Depths(p rdma.ConnParams, maxPrivate int) (ird, ord int, err error) {
	a := &d.attr
	ird, ord = p.IRD, p.ORD
	if ird == 0 {
		ird = a.MaxQPRdAtom
	}
	if ord == 0 {
		ord = a.MaxQPInitRdAtom
	}
	switch {
	case ird < 0 || ird > a.MaxQPRdAtom:
		err = fmt.Errorf("%w: IRD %d is not within 0 and %d", rdma.ErrInvalid, p.IRD, a.MaxQPRdAtom)
	case ord < 0 || ord > a.MaxQPInitRdAtom:
		err = fmt.Errorf("%w: ORD %d is not within 0 and %d", rdma.ErrInvalid, p.ORD, a.MaxQPInitRdAtom)
	case len(p.PrivateData) > maxPrivate:
		err = fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(p.PrivateData), maxPrivate)
	}
	return ird, ord, err
}
