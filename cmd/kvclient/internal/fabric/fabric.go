// Package fabric is kvclient fabric: it shows the RDMA devices of this machine,
// whether they are fit for use and which way leads to an address (devices), and
// measures a fabric without the store (perf). It uses no server and no client
// library, because its purpose is to tell whether the layers below them work.
package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli/fabrics"
	"github.com/rdmakv/rdmakv/rdma"
)

// Commands are the commands of this package, for the root command.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{fabricCmd(a)} }

// fabricCmd is fabric, with its two commands below it.
func fabricCmd(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fabric",
		Short: "look at the RDMA devices of this machine, and measure them",
		Long: `fabric answers the questions that come before the store: which RDMA devices
does this machine have, are they fit for use, and how fast are they.`,
	}
	cmd.AddCommand(fabricDevicesCmd(a), fabricPerfCmd(a))
	return cmd
}

// A way is a fabric, a device and an address: how to reach a server, or where
// to listen.
type way struct {
	fabric rdma.Fabric
	device string
	addr   string
	reason string
}

func (w way) String() string { return w.fabric.Name() + "/" + w.device }

// wayTo picks the first fabric that reaches addr, in the order in which the client
// library tries them. passed says why each one before it does not, for a user whose
// card is not used.
func wayTo(ctx context.Context, a *app.App, addr string) (w way, passed []error, err error) {
	for _, c := range fabrics.Choices(a.Config.Config, a.Logger()) {
		w, err := wayOn(ctx, a, c, addr)
		if err == nil {
			return w, passed, nil
		}
		passed = append(passed, err)
	}
	return way{}, passed, errors.Join(passed...)
}

// wayOn asks one fabric for its way to addr.
func wayOn(ctx context.Context, a *app.App, c fabrics.Choice, addr string) (way, error) {
	if c.Err != nil {
		return way{}, c.Err
	}
	// A fabric that is no Router has no notion of ways: it is software.
	router, ok := c.Fabric.(rdma.Router)
	if !ok {
		return anyWay(ctx, a, c.Fabric, addr)
	}
	r, err := router.Route(ctx, addr)
	if err != nil {
		return way{}, err
	}
	if err := allowed(a, c.Fabric, r.Device); err != nil {
		return way{}, err
	}
	return way{c.Fabric, r.Device, r.Addr, r.Reason}, nil
}

// anyWay is for a fabric that reaches everything from every device: the first
// device that is allowed will do.
func anyWay(ctx context.Context, a *app.App, f rdma.Fabric, addr string) (way, error) {
	list, err := f.Devices(ctx)
	if err != nil {
		return way{}, err
	}
	// The name that the user gave must be a device's; it does not matter which other
	// device has it.
	for _, d := range list {
		if allowed(a, f, d.Name) == nil {
			return way{f, d.Name, addr, d.Detail}, nil
		}
	}
	return way{}, fmt.Errorf("%s: %w: none of %s", f.Name(), rdma.ErrNoDevice, strings.Join(a.Config.Device, ", "))
}

// allowed says whether the configuration allows a device; the error names those that
// are.
func allowed(a *app.App, f rdma.Fabric, device string) error {
	if len(a.Config.Device) == 0 || slices.Contains(a.Config.Device, device) {
		return nil
	}
	return fmt.Errorf("%s: the way there is device %s; allowed are: %s", f.Name(), device, strings.Join(a.Config.Device, ", "))
}

// waysAt lists where one can listen for addr, on every fabric that is allowed. A
// server listens on all of them at a time, so a fault of one does not affect the
// others.
func waysAt(ctx context.Context, a *app.App, addr string) (ways []way, passed []error) {
	for _, c := range fabrics.Choices(a.Config.Config, a.Logger()) {
		if c.Err != nil {
			passed = append(passed, c.Err)
			continue
		}
		router, ok := c.Fabric.(rdma.Router)
		if !ok {
			w, err := anyWay(ctx, a, c.Fabric, addr)
			if err != nil {
				passed = append(passed, err)
				continue
			}
			ways = append(ways, w)
			continue
		}
		routes, err := router.Local(ctx, addr)
		// With an address of all interfaces there may be an error about one device
		// and routes by others.
		if err != nil {
			passed = append(passed, err)
		}
		for _, r := range routes {
			if err := allowed(a, c.Fabric, r.Device); err != nil {
				passed = append(passed, err)
				continue
			}
			ways = append(ways, way{c.Fabric, r.Device, r.Addr, r.Reason})
		}
	}
	return ways, passed
}
