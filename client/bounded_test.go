package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// TestReadBounded: a bound of nothing is refused, by each call that takes one, and a key without replicas is got as ever.
func TestReadBounded(t *testing.T) {
	n := node.Start(t, nil)
	filled(n)
	c := dialNode(n, nil)
	key := []byte("k")
	if err := c.Put(t.Context(), key, []byte("v")); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(o ...client.ReadOption) error{
		"Get":      func(o ...client.ReadOption) error { _, err := c.Get(t.Context(), key, o...); return err },
		"GetInto":  func(o ...client.ReadOption) error { _, err := c.GetInto(t.Context(), key, nil, o...); return err },
		"GetRange": func(o ...client.ReadOption) error { _, err := c.GetRange(t.Context(), key, 0, 1, o...); return err },
		"GetItem":  func(o ...client.ReadOption) error { _, err := c.GetItem(t.Context(), key, o...); return err },
		"Stat":     func(o ...client.ReadOption) error { _, err := c.Stat(t.Context(), key, o...); return err },
		"Exists":   func(o ...client.ReadOption) error { _, err := c.Exists(t.Context(), key, o...); return err },
	}
	for name, call := range calls {
		for _, d := range []time.Duration{0, -time.Second} {
			if err := call(client.ReadBounded(d)); !errors.Is(err, client.ErrRange) || !strings.Contains(err.Error(), "more than 0 is possible") {
				t.Errorf("%s with a bound of %v: %v", name, d, err)
			}
		}
		for _, o := range [][]client.ReadOption{{client.ReadBounded(time.Nanosecond)}, {client.ReadBounded(time.Hour)}, {{}, client.ReadBounded(time.Hour), client.ReadBounded(time.Second)}} {
			if err := call(o...); err != nil {
				t.Errorf("%s with %v: %v", name, o, err)
			}
		}
	}
}
