package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// aKey is a client of a server that has "v" at key "k".
func aKey(t *testing.T) (c *client.Client, key []byte) {
	t.Helper()
	n := node.Start(t, nil)
	filled(n)
	c, key = dialNode(n, nil), []byte("k")
	if err := c.Put(t.Context(), key, []byte("v")); err != nil {
		t.Fatal(err)
	}
	return c, key
}

// TestReadBounded: a bound of nothing is refused, by each call that takes one, and a key without replicas is got as ever.
func TestReadBounded(t *testing.T) {
	c, key := aKey(t)
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
		if err := call(client.ReadInto(make([]client.Result, 1))); !errors.Is(err, client.ErrOptions) {
			t.Errorf("%s with ReadInto: %v", name, err)
		}
		for _, o := range [][]client.ReadOption{{client.ReadBounded(time.Nanosecond)}, {client.ReadBounded(time.Hour)}, {{}, client.ReadBounded(time.Hour), client.ReadBounded(time.Second)}} {
			if err := call(o...); err != nil {
				t.Errorf("%s with %v: %v", name, o, err)
			}
		}
	}
}

// TestMultiGetReadBounded: as TestReadBounded, for many keys.
func TestMultiGetReadBounded(t *testing.T) {
	c, key := aKey(t)
	for _, d := range []time.Duration{0, -time.Second} {
		if got, err := c.MultiGet(t.Context(), [][]byte{key}, client.ReadBounded(d)); !errors.Is(err, client.ErrRange) || got != nil || !strings.Contains(err.Error(), "more than 0 is possible") {
			t.Errorf("with a bound of %v: %v, %v", d, got, err)
		}
	}
	for _, d := range []time.Duration{time.Nanosecond, time.Hour} {
		got, err := c.MultiGet(t.Context(), [][]byte{key, []byte("none")}, client.ReadBounded(d))
		if err != nil || len(got) != 2 || string(got[0].Value) != "v" || !errors.Is(got[1].Err, client.ErrNotFound) {
			t.Errorf("with a bound of %v: %v, %v", d, got, err)
		}
		var partial *client.PartialError
		if _, err := c.MultiGet(t.Context(), [][]byte{key, nil}, client.ReadBounded(d), client.ReadInto(got)); !errors.As(err, &partial) || !errors.Is(err, client.ErrKeyEmpty) {
			t.Errorf("an empty key: %v", err)
		}
	}
	if got, err := c.MultiGet(t.Context(), nil, client.ReadBounded(time.Second)); err != nil || len(got) != 0 {
		t.Errorf("no keys: %v, %v", got, err)
	}
}
