package base

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Device is one RNIC that a node has opened. The node and its spaces share it; what
// each of them makes on it is its own. A Device that is gone is never used again: the
// node opens another one in its place.
type Device struct {
	Fabric rdma.Fabric
	Asked  string // the name it was opened by; may be empty
	Dev    rdma.Device
	Attr   rdma.DeviceAttr

	away  atomic.Pointer[Absence] // nil while the hardware is there
	going func() bool             // the node ends: what breaks now is no loss
	lost  func(*Device, error)
}

// NewDevice is a device that is open. lost is told when it is gone, once, unless going
// says that the node is ending; both may be called from any goroutine and must not block.
func NewDevice(f rdma.Fabric, asked string, dev rdma.Device, going func() bool, lost func(*Device, error)) *Device {
	return &Device{Fabric: f, Asked: asked, Dev: dev, Attr: dev.Attr(), going: going, lost: lost}
}

// Name is FABRIC/DEVICE, as logs and statistics have it.
func (d *Device) Name() string { return d.Attr.Fabric + "/" + d.Dev.Name() }

// Far says that the device serves other machines too.
func (d *Device) Far() bool { return !d.Attr.Caps.Has(rdma.CapMapped) }

// Lose notes that the hardware is gone. It does not wait, and may be called again.
func (d *Device) Lose(why error) {
	if !d.going() && d.away.CompareAndSwap(nil, &Absence{Why: why, Since: time.Now()}) {
		d.lost(d, why)
	}
}

// Away says since when the device is gone; nil: it is there.
func (d *Device) Away() *Absence { return d.away.Load() }

// Tried notes an attempt to open a device that is away, and returns what is known then.
// One goroutine at a time calls it.
func (d *Device) Tried(err error) Absence {
	a := *d.away.Load()
	a.Tries, a.Last = a.Tries+1, err
	d.away.Store(&a)
	return a
}

// An Absence says since when a device is gone, and why. Immutable.
type Absence struct {
	Why   error
	Since time.Time
	Tries int   // to open it again
	Last  error // of the last of them
}

func (a *Absence) String() string {
	text := fmt.Sprintf("away since %s (%v)", a.Since.UTC().Format(time.RFC3339), a.Why)
	if a.Tries > 0 {
		text += fmt.Sprintf("; tries to open it again: %d, the last: %v", a.Tries, a.Last)
	}
	return text
}
