package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/rdma"
)

func (a *app) fabricCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fabric",
		Short: "look at the RDMA devices of this machine, and measure them",
		Long: `fabric answers the questions that come before the store: which RDMA devices
does this machine have, are they fit for use, and how fast are they.`,
	}
	cmd.AddCommand(a.fabricDevicesCmd(), a.fabricPerfCmd())
	return cmd
}

// A way is a fabric, a device and an address: how to reach somebody, or where
// to listen.
type way struct {
	fabric rdma.Fabric
	device string
	addr   string
	reason string
}

func (w way) String() string { return w.fabric.Name() + "/" + w.device }

// A choice is a fabric that the configuration allows, or why it cannot be had.
type choice struct {
	fabric rdma.Fabric
	err    error
}

// wayTo picks the first fabric that reaches addr. passed says why each one
// before it does not.
func (a *app) wayTo(ctx context.Context, addr string) (w way, passed []error, err error) {
	for _, c := range a.fabricChoices() {
		w, err := a.wayOn(ctx, c, addr)
		if err == nil {
			return w, passed, nil
		}
		passed = append(passed, err)
	}
	return way{}, passed, errors.Join(passed...)
}

func (a *app) wayOn(ctx context.Context, c choice, addr string) (way, error) {
	if c.err != nil {
		return way{}, c.err
	}
	router, ok := c.fabric.(rdma.Router)
	if !ok {
		return a.anyWay(ctx, c.fabric, addr)
	}
	r, err := router.Route(ctx, addr)
	if err != nil {
		return way{}, err
	}
	if err := a.wanted(c.fabric, r.Device); err != nil {
		return way{}, err
	}
	return way{c.fabric, r.Device, r.Addr, r.Reason}, nil
}

// anyWay is for a fabric that reaches everything from every device.
func (a *app) anyWay(ctx context.Context, f rdma.Fabric, addr string) (way, error) {
	list, err := f.Devices(ctx)
	if err != nil {
		return way{}, err
	}
	for _, d := range list {
		if a.wanted(f, d.Name) == nil {
			return way{f, d.Name, addr, d.Detail}, nil
		}
	}
	return way{}, fmt.Errorf("%s: %w: none of %s", f.Name(), rdma.ErrNoDevice, strings.Join(a.cfg.Device, ", "))
}

// wanted says whether the configuration allows a device.
func (a *app) wanted(f rdma.Fabric, device string) error {
	if len(a.cfg.Device) == 0 || slices.Contains(a.cfg.Device, device) {
		return nil
	}
	return fmt.Errorf("%s: the way there is device %s; allowed are: %s", f.Name(), device, strings.Join(a.cfg.Device, ", "))
}

// waysAt lists where one can listen for addr, on every fabric that is allowed.
func (a *app) waysAt(ctx context.Context, addr string) (ways []way, passed []error) {
	for _, c := range a.fabricChoices() {
		if c.err != nil {
			passed = append(passed, c.err)
			continue
		}
		router, ok := c.fabric.(rdma.Router)
		if !ok {
			w, err := a.anyWay(ctx, c.fabric, addr)
			if err != nil {
				passed = append(passed, err)
				continue
			}
			ways = append(ways, w)
			continue
		}
		routes, err := router.Local(ctx, addr)
		if err != nil {
			passed = append(passed, err)
		}
		for _, r := range routes {
			if err := a.wanted(c.fabric, r.Device); err != nil {
				passed = append(passed, err)
				continue
			}
			ways = append(ways, way{c.fabric, r.Device, r.Addr, r.Reason})
		}
	}
	return ways, passed
}
