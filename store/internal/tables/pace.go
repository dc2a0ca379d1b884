package tables

import (
	"context"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble has a rate for nothing that others write. A pacer stands in front of
// the writes of the tables, since a checkpoint that takes the whole disk holds
// up every put: the log is on the same disk.

// A pacer lets so many bytes a second pass, and a burst after a rest. left goes
// below zero for what is taken early: the sleep pays for it. Pebble writes a
// table's blocks on a goroutine of its own, a few blocks behind, and tells an
// error at the end of the table alone: the pacer keeps it for the next key.
type pacer struct {
	rate, burst int64
	now         func() time.Time
	sleep       func(context.Context, time.Duration) error

	mu    sync.Mutex
	ctx   context.Context // of the call that runs: Begin's for Set, then Commit's
	left  int64           // bytes that may pass at once
	at    time.Time       // when left was right
	slept time.Duration
	err   error // of the first write that failed
}

// under lets the bytes of a call wait within its context.
func (p *pacer) under(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
}

// failed returns what stopped the writes, or will stop the next.
func (p *pacer) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	return p.ctx.Err()
}

// told keeps the first error of a write.
func (p *pacer) told(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	return err
}

// waited returns how long the bytes have waited in all.
func (p *pacer) waited() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slept
}

// take lets n bytes pass when it is their time.
func (p *pacer) take(n int64) error {
	ctx, d := p.due(n)
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	return p.sleep(ctx, d)
}

// due takes n bytes and returns for how long they have to wait.
func (p *pacer) due(n int64) (context.Context, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate <= 0 {
		return p.ctx, 0
	}
	now := p.now()
	// A float holds the product of any rest and rate, where an int64 overflows.
	earned := float64(p.rate) * max(now.Sub(p.at), 0).Seconds()
	if earned >= float64(p.burst-p.left) {
		p.left, p.at = p.burst, now
	} else if earned >= 1 { // less is earned with the next
		p.left, p.at = p.left+int64(earned), now
	}
	p.left -= n
	if p.left >= 0 {
		return p.ctx, 0
	}
	d := time.Duration(float64(-p.left) / float64(p.rate) * float64(time.Second))
	p.slept += d
	return p.ctx, d
}

// A pacedFile is a file whose writes wait for the pacer.
type pacedFile struct {
	vfs.File
	pace *pacer
}

// Write writes in pieces, each when it is its time.
func (f *pacedFile) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		piece := p[:min(int64(len(p)), f.pace.burst, defaultSyncEach)]
		if err := f.pace.take(int64(len(piece))); err != nil {
			return n, f.pace.told(err)
		}
		m, err := f.File.Write(piece)
		n += m
		if err != nil {
			return n, f.pace.told(err)
		}
		p = p[len(piece):]
	}
	return n, nil
}

// Sync syncs the file, and keeps the error as Write does.
func (f *pacedFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return f.pace.told(err)
	}
	return nil
}

// sleep sleeps, or returns the error of ctx when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
