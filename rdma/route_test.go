package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// A plain fabric has one device, which goes with every address.
type plain struct {
	opened []string // names given to Open
	open   int      // devices open now
	fails  error
}

func (f *plain) Name() string { return "plain" }

func (f *plain) Devices(context.Context) ([]rdma.DeviceInfo, error) { return nil, nil }

func (f *plain) Open(ctx context.Context, name string) (rdma.Device, error) {
	f.opened = append(f.opened, name)
	if err := errors.Join(f.fails, ctx.Err()); err != nil {
		return nil, err
	}
	if name == "" {
		name = "only"
	}
	f.open++
	return &device{f: f, name: name}, nil
}

// A routed one has devices that are tied to addresses.
type routed struct {
	plain
	route rdma.Route
	local []rdma.Route
	err   error
	asked []string // "Route host:port", "Local host:port"
}

func (f *routed) Route(ctx context.Context, addr string) (rdma.Route, error) {
	f.asked = append(f.asked, "Route "+addr)
	return f.route, errors.Join(f.err, ctx.Err())
}

func (f *routed) Local(ctx context.Context, addr string) ([]rdma.Route, error) {
	f.asked = append(f.asked, "Local "+addr)
	return f.local, errors.Join(f.err, ctx.Err())
}

type device struct {
	rdma.Device
	f    *plain
	name string
}

func (d *device) Name() string          { return d.name }
func (d *device) Attr() rdma.DeviceAttr { return rdma.DeviceAttr{Reason: "the only one"} }
func (d *device) Close() error          { d.f.open--; return nil }

// ways are OpenFor and OpenAt: tests of what holds for both ask both.
var ways = map[string]func(context.Context, rdma.Fabric, string) (rdma.Device, rdma.Route, error){
	"OpenFor": rdma.OpenFor,
	"OpenAt":  rdma.OpenAt,
}

func TestOpenWithoutRouter(t *testing.T) {
	for what, open := range ways {
		f := &plain{}
		dev, route, err := open(t.Context(), f, "host:7")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		want := rdma.Route{Device: "only", Addr: "host:7", Reason: "the only one"}
		if dev.Name() != "only" || route != want || f.open != 1 || fmt.Sprint(f.opened) != "[]" {
			t.Errorf("%s: %s, %+v, %d open, by the names %q", what, dev.Name(), route, f.open, f.opened)
		}
	}
}

func TestOpenByRoute(t *testing.T) {
	far := rdma.Route{Device: "far0", Addr: "10.0.0.9:7", Reason: "a route"}
	here := []rdma.Route{{Device: "near0", Addr: "10.0.0.1:7"}, {Device: "near1", Addr: "10.0.0.2:7"}}
	for what, want := range map[string]rdma.Route{"OpenFor": far, "OpenAt": here[0]} {
		f := &routed{route: far, local: here}
		dev, route, err := ways[what](t.Context(), f, ":7")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		// Asked once: asked again, a name or a wildcard might mean another device.
		if dev.Name() != want.Device || route != want || len(f.asked) != 1 || len(f.opened) != 1 || f.open != 1 {
			t.Errorf("%s: %s, %+v, asked %q, opened %q", what, dev.Name(), route, f.asked, f.opened)
		}
	}
}

func TestOpenFails(t *testing.T) {
	broken := errors.New("broken")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, open := range ways {
		for name, c := range map[string]struct {
			ctx  context.Context
			f    *routed
			want error
		}{
			"no way":         {t.Context(), &routed{err: fmt.Errorf("%w that reaches it", rdma.ErrNoDevice)}, rdma.ErrNoDevice},
			"no address":     {t.Context(), &routed{err: rdma.ErrInvalid}, rdma.ErrInvalid},
			"ended":          {ended, &routed{local: make([]rdma.Route, 1)}, context.Canceled},
			"does not open":  {t.Context(), &routed{plain: plain{fails: broken}, local: make([]rdma.Route, 1)}, broken},
			"without router": {t.Context(), &routed{plain: plain{fails: broken}}, broken},
		} {
			f := rdma.Fabric(c.f)
			if name == "without router" {
				f = &c.f.plain
			}
			dev, route, err := open(c.ctx, f, "host:7")
			if dev != nil || route != (rdma.Route{}) || !errors.Is(err, c.want) || c.f.open != 0 {
				t.Errorf("%s, %s: %v, %+v, %v; %d open", what, name, dev, route, err, c.f.open)
			}
		}
	}
	_, _, err := rdma.OpenAt(t.Context(), &routed{}, "host:7")
	if op := (*rdma.OpError)(nil); !errors.As(err, &op) || !errors.Is(err, rdma.ErrNoDevice) || op.Addr != "host:7" {
		t.Errorf("nobody can listen: %v", err)
	}
}
