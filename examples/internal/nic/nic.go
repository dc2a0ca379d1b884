// Package nic holds the few lines that the examples would otherwise repeat and
// that teach nothing: a fabric by its name, the device that goes with an
// address, and waiting for one completion among many. Example pingpong spells
// the waiting out and says why it is done in this way.
package nic

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// Fabrics is what Fabric accepts, for usage texts. Default is what the examples
// use unless told otherwise: they are about devices.
const (
	Fabrics = "verbs (an RDMA device) or iwarp (software, no device)"
	Default = "verbs"
)

// Fabric makes the fabric with a name. There is no registry to look it up in: a
// program knows the fabrics it was built with.
func Fabric(name string) (rdma.Fabric, error) {
	switch name {
	case "verbs":
		// What the machine has: a card, or the kernel's software devices.
		f := verbs.New(verbs.Options{})
		if err := f.Unavailable(); err != nil {
			return nil, fmt.Errorf("%w\n(-fabric iwarp needs no device)", err)
		}
		return f, nil
	case "iwarp":
		// RDMA over TCP inside this process: needs no device and no privilege.
		return iwarp.New(iwarp.Options{}), nil
	}
	return nil, fmt.Errorf("fabric %q: there is %s", name, Fabrics)
}

// Side says what an address is to a program.
type Side bool

const (
	Listen Side = true  // an address of our own
	Dial   Side = false // the peer's
)

// Open opens a device of the fabric: the one with that name or, with the empty
// name, the one that goes with addr (host:port). It returns the address to use
// with that device too: a wildcard becomes the device's own address.
func Open(ctx context.Context, fabric rdma.Fabric, name, addr string, side Side) (rdma.Device, string, error) {
	if name != "" {
		dev, err := fabric.Open(ctx, name)
		return dev, addr, err
	}
	open := rdma.OpenFor
	if side == Listen {
		open = rdma.OpenAt
	}
	dev, route, err := open(ctx, fabric, addr)
	return dev, route.Addr, err
}
