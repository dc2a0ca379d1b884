package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// scanned goes through a scan, and returns its keys.
func scanned(ctx context.Context, c *client.Client, opts client.ScanOptions) (keys []string, err error) {
	for e, err := range c.Scan(ctx, opts) {
		if err != nil {
			return keys, err
		}
		if want := "of " + string(e.Key); opts.KeysOnly != (e.Value == nil) || e.Size != int64(len(want)) || e.Value != nil && string(e.Value) != want {
			return keys, fmt.Errorf("%+v", e)
		}
		keys = append(keys, string(e.Key))
	}
	return keys, nil
}

// somePairs gives the nodes n keys.
func somePairs(r *clienttest.Replicas, n int) (keys []string) {
	for i := range n {
		k := fmt.Sprintf("%c%03d", 'a'+i%3, i)
		r.Set(k, "of "+k)
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// A scan of a cluster with replicas shows the keys of all groups in order, whatever of them is asked for, by pages of the leaders alone.
func TestFleetScan(t *testing.T) {
	onReplicas(t, 4, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		keys := somePairs(r, 120)
		for _, r.Page = range []uint32{1, 3, 0} {
			for _, o := range []client.ScanOptions{
				{}, {KeysOnly: true}, {Prefix: []byte("b")}, {Prefix: []byte("b"), After: []byte("b049")}, {Start: []byte("a030"), End: []byte("b100")},
				{Limit: 1}, {Limit: 17, KeysOnly: true}, {After: []byte("a030"), Start: []byte("a030"), Limit: 50}, {Prefix: []byte("zz")},
			} {
				var want []string
				for _, k := range keys {
					if strings.HasPrefix(k, string(o.Prefix)) && (len(o.After) == 0 || k > string(o.After)) && k >= string(o.Start) &&
						(len(o.End) == 0 || k < string(o.End)) && (o.Limit == 0 || len(want) < o.Limit) {
						want = append(want, k)
					}
				}
				r.Draw(nil)
				got, err := scanned(t.Context(), c, o)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%+v by pages of %d: %v, %v\nwant %v", o, r.Page, got, err, want)
				}
				groups := map[uint32]bool{}
				for _, x := range r.Copies() {
					groups[x.Group] = true
				}
				if len(groups) != 4 {
					t.Errorf("%+v: %d groups were asked", o, len(groups))
				}
			}
		}
	})
}

// Whatever becomes of leaders between the pages of a scan, and of its requests, each key is shown once, in order.
func TestFleetScanOverFalls(t *testing.T) {
	for name, f := range map[string]clienttest.Fate{
		"another leads": {},
		"lost":          {Cut: true},
		"silent":        {Silent: true},
		"closing":       {Status: wire.StatusClosing},
	} {
		t.Run(name, func(t *testing.T) {
			onReplicas(t, 2, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
				keys := somePairs(r, 60)
				r.Page = 4
				n, falls := 0, 0
				r.Draw(func(x clienttest.Copied) clienttest.Fate {
					if x.Type != wire.TypeScan || r.LeaderLocked(x.Group) != x.Node {
						return clienttest.Fate{}
					}
					if n++; n%3 != 0 {
						return clienttest.Fate{}
					}
					falls++
					r.FallLocked(x.Group) // before the request is answered
					return f
				})
				begun := time.Now()
				got, err := scanned(t.Context(), c, client.ScanOptions{})
				if err != nil || !slices.Equal(got, keys) {
					t.Errorf("%v, %v\nwant %v", got, err, keys)
				}
				if falls < 5 {
					t.Errorf("%d falls", falls)
				}
				if took := time.Since(begun); took > time.Duration(falls)*(pagePatience+time.Second) {
					t.Errorf("%d falls took %v", falls, took)
				}
			})
		})
	}
}

// pagePatience is how long a leader may be silent with a page.
const pagePatience = 2 * time.Second

// A scan with a limit asks each group for about its part of that: if each were asked for all, nearly all of it would travel for nothing.
func TestFleetScanOfFewKeys(t *testing.T) {
	onReplicas(t, 4, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		keys := somePairs(r, 2000)
		var entries atomic.Int64
		for _, n := range r.Nodes {
			serve := n.OnRequest
			n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				out, ok := serve(h, msg)
				if h.Type == wire.TypeScan {
					if hr, err := wire.ParseHeader(out); err == nil && hr.Status == wire.StatusOK {
						m, _ := wire.ParseScanReply(wire.Body(out))
						entries.Add(int64(m.Count))
					}
				}
				return out, ok
			}
		}
		got, err := scanned(t.Context(), c, client.ScanOptions{Limit: 400, KeysOnly: true})
		if err != nil || !slices.Equal(got, keys[:400]) || entries.Load() > 1000 {
			t.Errorf("%d keys, %v; %d entries came for them", len(got), err, entries.Load())
		}
	})
}

// While nobody leads a group a scan waits for its page, and then fails: it does not show the keys of the others alone.
func TestFleetScanWithoutALeader(t *testing.T) {
	onReplicas(t, 2, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		keys := somePairs(r, 20)
		r.Elect(keys[0], nil)
		time.AfterFunc(700*time.Millisecond, func() { r.Elect(keys[0], r.Nodes[1]) })
		begun := time.Now()
		if got, err := scanned(t.Context(), c, client.ScanOptions{}); err != nil || !slices.Equal(got, keys) {
			t.Errorf("%v, %v", got, err)
		}
		if took := time.Since(begun); took < 700*time.Millisecond || took > time.Second {
			t.Errorf("it took %v", took)
		}
		r.Elect(keys[0], nil)
		before := c.Counters().Timeouts
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got, err := scanned(ctx, c, client.ScanOptions{})
		e := (*client.Error)(nil)
		if !errors.As(err, &e) || e.Op != "scan" || !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, client.ErrTimeout) || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
		if n := c.Counters().Timeouts - before; n != 1 {
			t.Errorf("%d timeouts are counted", n)
		}
		t.Log(err)
	})
}

// A page may take a leader longer than a get, so another replica is asked later; and it is asked.
func TestFleetScanPatience(t *testing.T) {
	onReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		keys := somePairs(r, 5)
		n := 0
		r.Draw(func(x clienttest.Copied) clienttest.Fate {
			n++
			return clienttest.Fate{Silent: n == 1}
		})
		begun := time.Now()
		got, err := scanned(t.Context(), c, client.ScanOptions{})
		if took := time.Since(begun); err != nil || !slices.Equal(got, keys) || took < pagePatience || took > pagePatience+time.Second {
			t.Errorf("%v, %v; it took %v", got, err, took)
		}
	})
}
