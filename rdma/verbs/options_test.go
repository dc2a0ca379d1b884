package verbs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

func TestOptionDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	if err := o.validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	if o.Connect != ConnectCM || o.GIDIndex != -1 || o.RetryCount > maxRetryCount || o.SetupTimeout <= 0 || o.Logger == nil {
		t.Errorf("defaults %+v", o)
	}
	kept := Options{Connect: ConnectTCP, GIDIndex: 3, Timeout: 10, RetryCount: 2, RNRRetry: 1, MinRNRTimer: 5, MaxPending: 7, SetupTimeout: time.Second, PathMTU: 1024}
	got := kept.withDefaults()
	got.Logger = nil
	if got != kept {
		t.Errorf("%+v became %+v", kept, got)
	}
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		opts Options
	}{
		{"Connect", Options{Connect: "magic"}},
		{"Port", Options{Port: -1}},
		{"Port", Options{Port: 256}},
		{"GIDIndex", Options{GIDIndex: -2}},
		{"GIDIndex", Options{GIDIndex: 256}},
		{"PKeyIndex", Options{PKeyIndex: -1}},
		{"ServiceLevel", Options{ServiceLevel: 16}},
		{"PathMTU", Options{PathMTU: 1500}},
		{"Timeout", Options{Timeout: 32}},
		{"RetryCount", Options{RetryCount: 7}},
		{"RNRRetry", Options{RNRRetry: 8}},
		{"MinRNRTimer", Options{MinRNRTimer: 32}},
		{"MaxPending", Options{MaxPending: -1}},
		{"SetupTimeout", Options{SetupTimeout: -1}},
	} {
		f := New(c.opts)
		_, openErr := f.Open(t.Context(), "")
		_, routeErr := f.Route(t.Context(), "127.0.0.1:1")
		_, localErr := f.Local(t.Context(), "127.0.0.1:1")
		for _, err := range []error{openErr, routeErr, localErr} {
			var op *rdma.OpError
			if !errors.Is(err, rdma.ErrInvalid) || !errors.As(err, &op) || !strings.Contains(err.Error(), c.name) {
				t.Errorf("%+v: %v; want ErrInvalid and the name %s", c.opts, err, c.name)
			}
		}
	}
}

// Without devices (most machines) everything says so in the same way; with them
// a wrong name is an error that lists them.
func TestNoSuchDevice(t *testing.T) {
	f := New(Options{})
	list, err := f.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	why := f.Unavailable()
	if (why == nil) != (len(list) > 0) {
		t.Fatalf("%d devices, Unavailable: %v", len(list), why)
	}
	_, err = f.Open(t.Context(), "no-such-device")
	if !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("Open: %v", err)
	}
	for _, d := range list {
		if !strings.Contains(err.Error(), d.Name) {
			t.Errorf("Open: %v does not name %s", err, d.Name)
		}
	}
	if why == nil {
		return
	}
	if !errors.Is(why, rdma.ErrNoDevice) {
		t.Errorf("Unavailable: %v", why)
	}
	_, anyErr := f.Open(t.Context(), "")
	_, routeErr := f.Route(t.Context(), "127.0.0.1:1")
	_, localErr := f.Local(t.Context(), ":1")
	for _, err := range []error{anyErr, routeErr, localErr} {
		var op *rdma.OpError
		if !errors.Is(err, rdma.ErrNoDevice) || !errors.As(err, &op) || errors.Is(err, ibv.ErrUnavailable) != errors.Is(why, ibv.ErrUnavailable) {
			t.Errorf("%v, Unavailable: %v", err, why)
		}
	}
}
