package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rdmakv/rdmakv/lab/ether"
)

// A Cluster is some guests on one virtual Ethernet.
type Cluster struct {
	// Switch is the Ethernet; port n is guest n.
	Switch *ether.Switch

	guests  []*Guest
	allDone chan struct{}
}

// MaxGuests bounds a cluster: each guest takes its memory from the host.
const MaxGuests = 8

// NewCluster boots n guests, g1 to gn with addresses 10.77.0.1 to 10.77.0.n, at
// the same time. They share the directory c.Dir and the image; each has c.Log
// with its name appended. c.Name, Number, Peers and Link are set here.
func NewCluster(ctx context.Context, n int, c Config) (*Cluster, error) {
	if n < 1 || n > MaxGuests {
		return nil, fmt.Errorf("%d guests: from 1 to %d", n, MaxGuests)
	}
	if n > 1 && c.Disk != "" {
		return nil, errors.New("guests cannot share a disk")
	}
	if c.CPUs == 0 && n > 1 {
		c.CPUs = 1 // several guests with two each are much slower on a small host
	}
	sw, err := ether.New(n, 1)
	if err != nil {
		return nil, err
	}
	cl := &Cluster{Switch: sw, guests: make([]*Guest, n), allDone: make(chan struct{})}
	var progress sync.Mutex
	tell := c.Progress
	if tell == nil {
		tell = func(string) {}
	}
	c.Progress = func(s string) {
		progress.Lock()
		defer progress.Unlock()
		tell(s)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range n {
		wg.Go(func() {
			c := c
			c.Number, c.Name, c.Peers, c.Link = i+1, fmt.Sprintf("g%d", i+1), n, sw.Port(i+1)
			if c.Log != "" && n > 1 {
				c.Log = filepath.Join(filepath.Dir(c.Log), c.Name+"-"+filepath.Base(c.Log))
			}
			if cl.guests[i], errs[i] = Boot(ctx, c); errs[i] != nil {
				cancel() // the others are of no use
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		cl.Close()
		return nil, err
	}
	go func() {
		for _, g := range cl.guests {
			<-g.Done()
		}
		close(cl.allDone)
	}()
	return cl, nil
}

// Len is the number of guests.
func (c *Cluster) Len() int { return len(c.guests) }

// Guest returns a guest by its number, from 1.
func (c *Cluster) Guest(n int) *Guest { return c.guests[n-1] }

// AllDone is closed when no guest runs any more.
func (c *Cluster) AllDone() <-chan struct{} { return c.allDone }

// Close ends all guests and the Ethernet.
func (c *Cluster) Close() error {
	errs := make([]error, len(c.guests))
	var wg sync.WaitGroup
	for i, g := range c.guests {
		if g != nil {
			wg.Go(func() { errs[i] = g.Close() })
		}
	}
	wg.Wait()
	return errors.Join(append(errs, c.Switch.Close())...)
}
