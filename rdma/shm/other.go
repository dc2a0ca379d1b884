//go:build !linux

package shm

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Fabric of a system without memfds: it has no device and says why.
type Fabric struct{}

var _ rdma.Fabric = (*Fabric)(nil)

// New makes a fabric without a device.
func New(Options) *Fabric { return &Fabric{} }

// Name is "shm".
func (f *Fabric) Name() string { return fabricName }

// Devices lists none.
func (f *Fabric) Devices(context.Context) ([]rdma.DeviceInfo, error) { return nil, nil }

// Open fails: sealed memfds are Linux's.
func (f *Fabric) Open(_ context.Context, name string) (rdma.Device, error) {
	return nil, &rdma.OpError{Op: "open", Fabric: fabricName, Addr: name,
		Err: fmt.Errorf("%w: shared memory needs the sealed memfds of Linux", rdma.ErrNoDevice)}
}
