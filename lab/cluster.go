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

	configs []Config // of the guests
	allDone chan struct{}

	mu      sync.Mutex
	guests  []*Guest
	running int // guests that run or boot; allDone is closed when there are none
}

// MaxGuests bounds a cluster: each guest takes its memory from the host.
const MaxGuests = 8

// NewCluster boots n guests, g1 to gn with addresses 10.77.0.1 to 10.77.0.n, at
// the same time. They share the directory c.Dir and the image. Each has a log and a
// disk of its own, if c.Log and c.Disk are set: the files of guest gn have "gn-" before
// their names. c.Name, Number, Peers and Link are set here.
func NewCluster(ctx context.Context, n int, c Config) (*Cluster, error) {
	if n < 1 || n > MaxGuests {
		return nil, fmt.Errorf("%d guests: from 1 to %d", n, MaxGuests)
	}
	if c.CPUs == 0 && n > 1 {
		c.CPUs = 1 // several guests with two each are much slower on a small host
	}
	sw, err := ether.New(n, 1)
	if err != nil {
		return nil, err
	}
	cl := &Cluster{Switch: sw, guests: make([]*Guest, n), allDone: make(chan struct{}), running: n}
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
		c := c
		c.Number, c.Name, c.Peers, c.Link = i+1, fmt.Sprintf("g%d", i+1), n, sw.Port(i+1)
		if n > 1 {
			c.Log, c.Disk = c.ownFile(c.Log), c.ownFile(c.Disk)
		}
		cl.configs = append(cl.configs, c)
		wg.Go(func() {
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
	for _, g := range cl.guests {
		go cl.await(g)
	}
	return cl, nil
}

// ownFile is the name of a guest's own file, where all guests were given one name.
func (c Config) ownFile(file string) string {
	if file == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(file), c.Name+"-"+filepath.Base(file))
}

// await notes that a guest has ended.
func (c *Cluster) await(g *Guest) {
	<-g.Done()
	c.ended()
}

func (c *Cluster) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 {
		close(c.allDone)
	}
}

// Len is the number of guests.
func (c *Cluster) Len() int { return len(c.guests) }

// Guest returns a guest by its number, from 1: the one that was booted last under it.
func (c *Cluster) Guest(n int) *Guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.guests[n-1]
}

// Reboot boots a guest anew that has ended (Guest.Kill): with its address, its port
// at the Ethernet and its disk, on which is what it had synced. Its other files were in
// memory, and so were its processes. Another guest must run, because AllDone is closed
// otherwise; Reboot fails then, and while the guest itself runs. It must not be called
// beside Close, or twice at the same time for one guest.
func (c *Cluster) Reboot(ctx context.Context, n int) error {
	old := c.Guest(n)
	select {
	case <-old.Done():
	default:
		return fmt.Errorf("guest g%d runs: Guest.Kill ends it", n)
	}
	if err := old.Close(); err != nil {
		return err
	}
	c.mu.Lock()
	last := c.running == 0
	if !last {
		c.running++
	}
	c.mu.Unlock()
	if last {
		return errors.New("no guest runs any more: NewCluster boots all")
	}
	g, err := Boot(ctx, c.configs[n-1])
	if err != nil {
		c.ended()
		return err
	}
	c.mu.Lock()
	c.guests[n-1] = g
	c.mu.Unlock()
	go c.await(g)
	return nil
}

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
